// What somebody asked of a job before the controller died is carried out by the next one: at
// whatever point of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/works.h"

namespace meshwright::controller {
namespace {

using proto::JobState;

constexpr int kPoints = 40;  // a halt takes fewer messages

// A job that is asked for something, and the controller dies so many messages later.
struct Asked : Works {
  explicit Asked(bool holds) : Works(2) { cluster.workers_hold = holds; }
  void DieAfter(int messages) {
    for (int i = 0; i < messages && cluster.DeliverOne(); ++i) {
    }
    cluster.RestartController();
    for (const char* worker : {"w0", "w1"}) {
      if (cluster.workers_hold) {
        cluster.Reconnect(worker);
      } else {
        cluster.AddWorker(worker, 1);
      }
    }
    Work(8000);
  }
};

TEST(Wishes, ACancelThatWasAcceptedIsCarriedOut) {
  for (const bool holds : {true, false}) {
    for (int point = 0; point < kPoints; ++point) {
      SCOPED_TRACE(::testing::Message() << "after " << point << " messages, held: " << holds);
      Asked asked(holds);
      asked.Run(Works::Request(2), 500);
      ASSERT_TRUE(asked.cluster.Cancel(asked.job).ok());
      EXPECT_EQ(asked.cluster.Record(asked.job).wish, JobWish::kCancel);
      asked.DieAfter(point);
      ASSERT_EQ(asked.Info().state, JobState::kCancelled) << asked.Info().message;
      if (holds) {
        EXPECT_EQ(asked.Info().checkpoint_step, asked.Info().steps_done) << "saved first";
      }
      EXPECT_EQ(asked.cluster.Record(asked.job).wish, JobWish::kNone);
    }
  }
}

TEST(Wishes, APauseThatWasAcceptedIsCarriedOut) {
  for (const bool holds : {true, false}) {
    for (int point = 0; point < kPoints; ++point) {
      SCOPED_TRACE(::testing::Message() << "after " << point << " messages, held: " << holds);
      Asked asked(holds);
      asked.Run(Works::Request(2), 500);
      ASSERT_TRUE(asked.cluster.Pause(asked.job).ok());
      asked.DieAfter(point);
      ASSERT_EQ(asked.Info().state, JobState::kPaused) << asked.Info().message;
      EXPECT_EQ(asked.cluster.Record(asked.job).wish, JobWish::kNone);
      ASSERT_TRUE(asked.cluster.Resume(asked.job).ok());
      asked.Work(2000);
      EXPECT_TRUE(asked.Runs());
    }
  }
}

TEST(Wishes, OfAJobThatHasNotBegunToTrain) {
  for (const bool pauses : {true, false}) {
    for (int point = 0; point < 25; ++point) {
      SCOPED_TRACE(::testing::Message() << "after " << point << " messages, pauses: " << pauses);
      Asked asked(true);
      asked.job = asked.cluster.Submit(Works::Request(2));
      for (int i = 0; i < point; ++i) (void)asked.cluster.DeliverOne();
      const Status accepted =
          pauses ? asked.cluster.Pause(asked.job) : asked.cluster.Cancel(asked.job);
      ASSERT_TRUE(accepted.ok()) << accepted;
      asked.DieAfter(0);
      EXPECT_EQ(asked.Info().state, pauses ? JobState::kPaused : JobState::kCancelled)
          << asked.Info().message;
    }
  }
}

TEST(Wishes, OfAJobThatKeepsNoCheckpointsIsItsEndAtOnce) {
  Asked asked(true);
  ir::JobRequest request = Works::Request(2);
  request.checkpoint.enable = false;
  asked.Run(request, 500);
  ASSERT_TRUE(asked.cluster.Cancel(asked.job).ok());
  asked.DieAfter(0);
  EXPECT_EQ(asked.Info().state, JobState::kCancelled);
}

TEST(Wishes, OneThatWasTakenBackIsForgotten) {
  Asked asked(true);
  asked.Run(Works::Request(2), 500);
  asked.cluster.hold_writes = true;
  ASSERT_TRUE(asked.cluster.Pause(asked.job).ok());
  asked.Work(500);
  ASSERT_TRUE(asked.cluster.Resume(asked.job).ok());
  asked.cluster.hold_writes = false;
  asked.DieAfter(10);
  EXPECT_TRUE(asked.Runs()) << asked.Info().message;
}

TEST(Wishes, ACancelIsMoreThanAPause) {
  Asked asked(true);
  asked.Run(Works::Request(2), 500);
  ASSERT_TRUE(asked.cluster.Pause(asked.job).ok());
  ASSERT_TRUE(asked.cluster.Cancel(asked.job).ok());
  ASSERT_TRUE(asked.cluster.Pause(asked.job).ok());
  asked.DieAfter(0);
  EXPECT_EQ(asked.Info().state, JobState::kCancelled);
}

}  // namespace
}  // namespace meshwright::controller
