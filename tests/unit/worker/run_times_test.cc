#include "worker/run_times.h"

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
  EXPECT_DOUBLE_EQ(TurnSeconds({{9'000, true}, {4'000, true}}), 4e-6);
  EXPECT_DOUBLE_EQ(TurnSeconds({{9'000, true}, {4'000, true}, {5'000, false}, {7'000, false}}),
                   6e-6);
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
    const Result<double> seconds = TimeTurn(clock, {slice_ns, 7}, run_once);
    ASSERT_TRUE(seconds.has_value()) << seconds.error();
    EXPECT_EQ(ran, count) << slice_ns;
    EXPECT_DOUBLE_EQ(*seconds, 1e-3);
  }
  EXPECT_FALSE(TimeTurn(clock, {}, [] { return Internal("no"); }).has_value());
}

}  // namespace
}  // namespace meshwright::worker
