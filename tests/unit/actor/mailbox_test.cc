#include "actor/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "actor/owner_loop.h"
#include "actor/reply.h"
#include "tests/unit/actor/sim_scheduler.h"

namespace meshwright::actor {
namespace {

TEST(Mailbox, RefusesWhatIsBeyondItsBoundAndLeavesTheMessageAsItWas) {
  Mailbox<std::string> mailbox(2);
  EXPECT_EQ(mailbox.Offer("a"), Offered::kTaken);
  EXPECT_EQ(mailbox.Offer("b"), Offered::kTaken);
  std::string third = "a long enough text to be moved";
  EXPECT_EQ(mailbox.Offer(std::move(third)), Offered::kFull);
  EXPECT_EQ(third, "a long enough text to be moved");
  EXPECT_EQ(mailbox.Take(), "a");
  EXPECT_EQ(mailbox.Offer(std::move(third)), Offered::kTaken);
  EXPECT_EQ(mailbox.Take(), "b");
  EXPECT_EQ(mailbox.Take(), "a long enough text to be moved");
  EXPECT_EQ(mailbox.Take(), std::nullopt);
}

TEST(Mailbox, ACreditIsAPlaceThatNobodyElseTakes) {
  Mailbox<int> mailbox(2);
  auto credit = mailbox.Reserve();
  ASSERT_TRUE(credit);
  EXPECT_EQ(mailbox.Offer(1), Offered::kTaken);
  EXPECT_EQ(mailbox.Offer(2), Offered::kFull);
  EXPECT_FALSE(mailbox.Reserve());
  EXPECT_EQ(mailbox.Offer(std::move(*credit), 3), Offered::kTaken);
  EXPECT_EQ(mailbox.depth(), 2u);
  EXPECT_EQ(mailbox.credits(), 0u);
  {
    (void)mailbox.Take();
    const auto dropped = mailbox.Reserve();
    EXPECT_EQ(mailbox.credits(), 1u);
  }
  EXPECT_EQ(mailbox.credits(), 0u);
  EXPECT_EQ(mailbox.Offer(4), Offered::kTaken);
}

TEST(Mailbox, ClosedItTakesNothingAndGivesBackWhatWaits) {
  Mailbox<int> mailbox(3);
  auto credit = mailbox.Reserve();
  EXPECT_EQ(mailbox.Offer(1), Offered::kTaken);
  EXPECT_EQ(mailbox.Offer(2), Offered::kTaken);
  EXPECT_EQ(mailbox.Close(), (std::vector<int>{1, 2}));
  EXPECT_EQ(mailbox.Offer(3), Offered::kClosed);
  EXPECT_EQ(mailbox.Offer(std::move(*credit), 3), Offered::kClosed);
  EXPECT_FALSE(mailbox.Reserve());
}

TEST(OwnerLoop, HandlesOneMessageAtATimeInTheOrderOfTheOffers) {
  Executor executor("owner");
  ExecutorScheduler scheduler(executor);
  std::vector<int> seen;
  OwnerLoop<int> loop(scheduler, 1000, [&](int message) { seen.push_back(message); });
  std::thread other([&] {
    for (int i = 1; i < 500; i += 2) EXPECT_EQ(loop.Offer(int{i}), Offered::kTaken);
  });
  for (int i = 0; i < 500; i += 2) EXPECT_EQ(loop.Offer(int{i}), Offered::kTaken);
  other.join();
  executor.Stop();
  ASSERT_EQ(seen.size(), 500u);
  int last[2] = {-1, -1};
  for (const int message : seen) {
    EXPECT_GT(message, last[message % 2]);
    last[message % 2] = message;
  }
}

TEST(OwnerLoop, OwnersOfOneSchedulerTakeTurns) {
  SimWorld world(1);
  SimScheduler scheduler(world);
  int busy = 0, quiet = 0;
  OwnerLoop<int>* self = nullptr;
  OwnerLoop<int> endless(scheduler, 4, [&](int) {
    ++busy;
    EXPECT_EQ(self->Offer(1), Offered::kTaken);
  });
  self = &endless;
  OwnerLoop<int> other(scheduler, 4, [&](int) { ++quiet; });
  EXPECT_EQ(endless.Offer(1), Offered::kTaken);
  EXPECT_EQ(other.Offer(1), Offered::kTaken);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(world.RunOne());
  EXPECT_EQ(quiet, 1);
  EXPECT_GT(busy, 20);
}

TEST(ReplySlot, IsAnsweredOnceAlsoWhenItIsForgotten) {
  std::vector<Result<int>> answers;
  const auto note = [&](Result<int> answer) { answers.push_back(std::move(answer)); };
  {
    ReplySlot<int> slot(note);
    slot.Complete(1);
    slot.Complete(2);
    ReplySlot<int> moved = std::move(slot);
  }
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0], 1);
  {
    ReplySlot<int> forgotten(note);
    EXPECT_TRUE(forgotten.wanted());
    forgotten = ReplySlot<int>();
    EXPECT_EQ(answers.size(), 2u);
  }
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].error().code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace meshwright::actor
