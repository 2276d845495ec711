#include "base/clock.h"
#include "tests/fake_clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace meshwright {
namespace {

TEST(SystemClock, NeverRunsBackwards) {
  int64_t last_ns = SystemClock().NowNs();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now_ns = SystemClock().NowNs();
    ASSERT_GE(now_ns, last_ns);
    last_ns = now_ns;
  }
  EXPECT_GT(SystemClock().UnixMs(), 1'600'000'000'000);
}

TEST(FakeClock, MovesBothTimesOnlyWhenTold) {
  FakeClock clock(5, 1'000);
  EXPECT_EQ(clock.NowNs(), 5);
  EXPECT_EQ(clock.UnixMs(), 1'000);
  clock.AdvanceMs(20);
  EXPECT_EQ(clock.NowNs(), 20'000'005);
  EXPECT_EQ(clock.NowMs(), 20);
  EXPECT_EQ(clock.UnixMs(), 1'020);
}

TEST(Deadline, ExpiresWhenTheTimeHasPassed) {
  FakeClock clock;
  const Deadline deadline = Deadline::After(10, clock);
  EXPECT_EQ(deadline.remaining_ms(), 10);
  clock.AdvanceNs(9'000'001);
  EXPECT_EQ(deadline.remaining_ms(), 1) << "rounds up: a wait that long reaches the deadline";
  EXPECT_FALSE(deadline.expired());
  clock.AdvanceNs(999'999);
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(deadline.remaining_ms(), 0);
  clock.AdvanceMs(1000);
  EXPECT_EQ(deadline.remaining_ms(), 0);
}

TEST(Deadline, NegativeTimeoutsAreOverAtOnce) {
  FakeClock clock;
  EXPECT_TRUE(Deadline::After(-5, clock).expired());
}

TEST(Deadline, HugeTimeoutsDoNotOverflow) {
  FakeClock clock(1'000'000'000);
  const Deadline deadline = Deadline::After(std::numeric_limits<int64_t>::max(), clock);
  EXPECT_FALSE(deadline.expired());
  EXPECT_GT(deadline.remaining_ms(), int64_t{1} << 40);
  EXPECT_GT(deadline.SteadyTimePoint(), std::chrono::steady_clock::now());
}

}  // namespace
}  // namespace meshwright
