#include "worker/run_times.h"
#include "tests/fake_clock.h"

#include <gtest/gtest.h>

#include <utility>

namespace meshwright::worker {
namespace {

TEST(TurnSeconds, IsTheMeanWithoutTheSlowestTwentieth) {
  std::vector<TimedRun> runs;
  for (int i = 0; i < 20; ++i) runs.push_back({i % 2 == 0 ? 1'000 : 3'000, false});
  runs.push_back({1'000'000, false});
  EXPECT_DOUBLE_EQ(TurnSeconds(runs), 2e-6);
  EXPECT_DOUBLE_EQ(TurnSeconds({{0, false}}), 1e-9) << "the clock's resolution";
}

TEST(TurnSeconds, InterruptedRunsDoNotCountUnlessAllWere) {
  EXPECT_DOUBLE_EQ(TurnSeconds({{9'000, true}, {4'000, true}, {5'000, true}}), 5e-6);
  EXPECT_DOUBLE_EQ(TurnSeconds({{9'000, true}, {4'000, true}, {5'000, false}, {7'000, false}}),
                   6e-6);
}

// Of a machine in which each run is interrupted when a test says so.
struct FakeMeter final : CoreMeter {
  int64_t ThreadNs() const override { return thread_ns; }
  int64_t ThreadInterruptions() const override { return of_thread; }
  int64_t ProcessInterruptions() const override { return of_thread + of_others; }

  int64_t thread_ns = 0, of_thread = 0, of_others = 0;
};

TEST(TimeTurn, OfAnInterruptedThreadTheTimeCountsThatItHadTheCore) {
  FakeClock clock;
  FakeMeter meter;
  const auto run_once = [&] {
    clock.AdvanceMs(10);  // six of them another's
    meter.thread_ns += 4'000'000;
    ++meter.of_thread;
    return OkStatus();
  };
  EXPECT_DOUBLE_EQ(*TimeTurn(clock, {0, 1, false}, run_once, meter), 4e-3);
  EXPECT_DOUBLE_EQ(*TimeTurn(clock, {0, 1, true}, run_once, meter), 10e-3) << "not known";
}

TEST(TimeTurn, OfManyThreadsInterruptedRunsDoNotCount) {
  FakeClock clock;
  FakeMeter meter;
  int ran = 0;
  const auto run_once = [&] {
    const bool interrupted = ++ran % 2 == 0;
    clock.AdvanceMs(interrupted ? 9 : 1);
    if (interrupted) ++meter.of_others;
    return OkStatus();
  };
  EXPECT_DOUBLE_EQ(*TimeTurn(clock, {1'000'000'000, 10, true}, run_once, meter), 1e-3);
  EXPECT_DOUBLE_EQ(*TimeTurn(clock, {1'000'000'000, 10, false}, run_once, meter), 5e-3)
      << "this thread was not interrupted";
}

TEST(TimeTurn, EndsWithTheSliceOrTheMostRuns) {
  FakeClock clock;
  for (const auto& [slice_ns, count] : {std::pair{0, 1}, {5'000'000, 5}, {50'000'000, 7}}) {
    int ran = 0;
    const auto run_once = [&] {
      ++ran;
      clock.AdvanceMs(1);
      return OkStatus();
    };
    const Result<double> seconds = TimeTurn(clock, {slice_ns, 7}, run_once, FakeMeter());
    ASSERT_TRUE(seconds.has_value()) << seconds.error();
    EXPECT_EQ(ran, count) << slice_ns;
    EXPECT_DOUBLE_EQ(*seconds, 1e-3);
  }
  EXPECT_FALSE(TimeTurn(clock, {}, [] { return Internal("no"); }).has_value());
}

}  // namespace
}  // namespace meshwright::worker
