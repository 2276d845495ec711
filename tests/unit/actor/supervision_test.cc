#include "actor/supervision.h"

#include <gtest/gtest.h>

namespace meshwright::actor {
namespace {

constexpr uint64_t kChild = 7;

Supervisor MakeSupervisor() {
  return Supervisor({{.child = "*",
                      .event = ChildEvent::kFailed,
                      .verdict = Verdict::kRestart,
                      .backoff_ms = 100,
                      .backoff_max_ms = 300,
                      .restarts = 3,
                      .per_ms = 10'000,
                      .spent = Verdict::kEscalate},
                     {.child = "env", .event = ChildEvent::kFailed, .verdict = Verdict::kEscalate},
                     {.child = "*", .event = ChildEvent::kSilent, .verdict = Verdict::kEscalate}});
}

TEST(Supervisor, ARowOfTheKindComesBeforeTheRowOfAllAndNoRowGivesUp) {
  Supervisor supervisor = MakeSupervisor();
  EXPECT_EQ(supervisor.On(1, "env", ChildEvent::kFailed, 0).verdict, Verdict::kEscalate);
  EXPECT_EQ(supervisor.On(1, "env", ChildEvent::kSilent, 0).verdict, Verdict::kEscalate);
  EXPECT_EQ(supervisor.On(1, "reward", ChildEvent::kFailed, 0).verdict, Verdict::kRestart);
  EXPECT_EQ(supervisor.On(1, "reward", ChildEvent::kStopped, 0).verdict, Verdict::kGiveUp);
}

TEST(Supervisor, TheBackoffDoublesUpToItsBoundAndTheBudgetEndsIt) {
  Supervisor supervisor = MakeSupervisor();
  int64_t now_ms = 1000;
  for (const int64_t expected : {100, 200, 300}) {
    const Decision decision = supervisor.On(kChild, "reward", ChildEvent::kFailed, now_ms);
    EXPECT_EQ(decision.verdict, Verdict::kRestart);
    EXPECT_EQ(decision.after_ms, expected);
    now_ms += expected;
    supervisor.Restarted(kChild, now_ms);
  }
  const Decision spent = supervisor.On(kChild, "reward", ChildEvent::kFailed, now_ms);
  EXPECT_EQ(spent.verdict, Verdict::kEscalate);
  EXPECT_TRUE(spent.spent);
  // Another child has a budget of its own.
  EXPECT_EQ(supervisor.On(8, "reward", ChildEvent::kFailed, now_ms).verdict, Verdict::kRestart);
}

TEST(Supervisor, ABudgetComesBackWithTimeAndARestartCountsWhenItHappens) {
  Supervisor supervisor = MakeSupervisor();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(supervisor.On(kChild, "reward", ChildEvent::kFailed, 0).verdict, Verdict::kRestart);
    supervisor.Restarted(kChild, 5'000);
  }
  EXPECT_TRUE(supervisor.On(kChild, "reward", ChildEvent::kFailed, 14'999).spent);
  const Decision later = supervisor.On(kChild, "reward", ChildEvent::kFailed, 15'000);
  EXPECT_EQ(later.verdict, Verdict::kRestart);
  EXPECT_EQ(later.after_ms, 100);
}

TEST(Supervisor, ATableIsPrintedRowByRow) {
  EXPECT_EQ(FormatSupervision(MakeSupervisor().table()),
            "* failed restart 100..300 ms, 3 per 10000 ms, then escalate\n"
            "env failed escalate\n"
            "* silent escalate\n");
}

}  // namespace
}  // namespace meshwright::actor
