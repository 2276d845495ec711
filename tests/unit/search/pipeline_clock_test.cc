// What layouts are priced by: the clock of a schedule, balanced parts, what ZeRO can split.
#include "search/pipeline_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "search/balance_parts.h"
#include "search/layer_probe.h"
#include "search/layout_cost.h"

namespace meshwright::search {
namespace {

using planner::ScheduleStep;

constexpr auto kForward = ir::Phase::kForward;
constexpr auto kBackward = ir::Phase::kBackward;

// F0 F1 B0 B1 W0 W1 on one stage.
const std::vector<planner::StageSchedule> kLateWeights = {{{kForward, 0},
                                                           {kForward, 1},
                                                           {kBackward, 0},
                                                           {kBackward, 1},
                                                           {kBackward, 0, 0, true},
                                                           {kBackward, 1, 0, true}}};

FullestMoments HoldLateWeights(int64_t kept_bytes, int64_t waiting_bytes) {
  const PartCost part = {1, 2, 3, kept_bytes, waiting_bytes, 0};
  EXPECT_EQ(EndSeconds({1, 1, false}, kLateWeights, {{&part, 1}, {}, true})[0], 12);
  return FindFullestMoments({1, 1, false}, kLateWeights, {{&part, 1}, {}, true});
}

TEST(PipelineClock, HoldsWhatWReadsUntilW) {
  const FullestMoments light = HoldLateWeights(10, 4);
  EXPECT_EQ(light.most_held_bytes[0], 20) << "behind the second forward";
  EXPECT_EQ(light.in_flight[0].forward_done, 2);
  const FullestMoments heavy = HoldLateWeights(10, 16);
  EXPECT_EQ(heavy.most_held_bytes[0], 32) << "behind the second B: both wait for W";
  EXPECT_EQ(heavy.in_flight[0].forward_done, 0);
  EXPECT_EQ(heavy.in_flight[0].backward_done, 2);
}

TEST(PipelineClock, StagesWaitForOneAnotherAndForMessages) {
  const std::vector<PartCost> parts = {{1, 2, 0, 5, 0, 0}, {3, 4, 0, 7, 0, 0}};
  const std::vector<double> transfer_s = {0.5};
  const auto schedule = planner::MakeSchedule("gpipe", {2, 1, false}, 1);
  ASSERT_TRUE(schedule.has_value());
  const PipelineCost cost = {parts, transfer_s, false};
  const std::vector<double> end_s = EndSeconds({2, 1, false}, *schedule, cost);
  EXPECT_DOUBLE_EQ(end_s[1], 1 + 0.5 + 3 + 4);
  EXPECT_DOUBLE_EQ(end_s[0], 1 + 0.5 + 3 + 4 + 0.5 + 2);
  EXPECT_EQ(FindFullestMoments({2, 1, false}, *schedule, cost).most_held_bytes,
            (std::vector<int64_t>{5, 7}));
}

TEST(ShortestOfNearest, TakesHalfTheProgramsForLessThanAPercent) {
  const auto cost = [](double step_s, int64_t pipeline, int64_t microbatches, int64_t chunks) {
    LayoutCost one;
    one.step_s = step_s;
    one.layout.pipeline = pipeline;
    one.layout.microbatches = microbatches;
    one.layout.chunks = chunks;
    one.layout.schedule = chunks > 1 ? "interleaved" : "1f1b";
    return one;
  };
  const LayoutCost fastest = cost(1, 8, 64, 2);
  EXPECT_EQ(ShortestOfNearest({fastest}), 0u);
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.009, 8, 64, 1)}), 1u);
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.011, 8, 64, 1)}), 0u) << "too slow";
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.009, 6, 64, 2)}), 0u) << "not short enough";
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.002, 4, 64, 2), cost(1.004, 4, 64, 1)}), 2u);
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.002, 4, 64, 1), cost(1.004, 4, 64, 1)}), 1u);
}

double SlowestPart(const std::vector<std::vector<double>>& sums, const std::vector<int>& parts) {
  double slowest_s = 0;
  for (size_t part = 0; part < sums.size(); ++part) {
    const auto [begin, end] = std::equal_range(parts.begin(), parts.end(), static_cast<int>(part));
    EXPECT_NE(begin, end) << "part " << part << " is empty";
    slowest_s = std::max(slowest_s, sums[part][static_cast<size_t>(end - parts.begin())] -
                                        sums[part][static_cast<size_t>(begin - parts.begin())]);
  }
  return slowest_s;
}

// Over every way to cut [begin, n) for the parts from `part` on.
double LeastSlowest(const std::vector<std::vector<double>>& sums, size_t part, size_t begin) {
  const size_t layers = sums[0].size() - 1;
  const std::vector<double>& sum = sums[part];
  if (part + 1 == sums.size()) return sum[layers] - sum[begin];
  double least_s = std::numeric_limits<double>::infinity();
  for (size_t end = begin + 1; end + (sums.size() - 1 - part) <= layers; ++end) {
    least_s = std::min(least_s, std::max(sum[end] - sum[begin], LeastSlowest(sums, part + 1, end)));
  }
  return least_s;
}

TEST(BalanceParts, NoCutIsBetter) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 400; ++round) {
    const size_t layers = 1 + random() % 9;
    const size_t parts = 1 + random() % layers;
    std::vector<double> seconds;
    for (size_t i = 0; i < layers; ++i) seconds.push_back(static_cast<double>(random() % 6));
    std::vector<std::vector<double>> sums;
    for (size_t part = 0; part < parts; ++part) {
      const double speed = round % 2 == 0 ? 1 : static_cast<double>(1 + random() % 3);
      sums.push_back({0});
      for (const double s : seconds) sums.back().push_back(sums.back().back() + s / speed);
    }
    const std::vector<std::span<const double>> spans(sums.begin(), sums.end());
    const std::vector<int> part_of_layer = BalanceParts(spans);
    ASSERT_TRUE(std::is_sorted(part_of_layer.begin(), part_of_layer.end()));
    ASSERT_DOUBLE_EQ(SlowestPart(sums, part_of_layer), LeastSlowest(sums, 0, 0)) << round;
  }
}

TEST(ZeroSplit, TakesWeightsOfWhichADimDivides) {
  LayerProbe probe;
  probe.weights = {{{96, 64}, 24576, 49152},
                   {{7, 50}, 1400, 2800},
                   {{8}, 32, 64},
                   {{30, 64}, 7680, 15360, 3840, true}};
  const ZeroSplit by_eight = SplitOver(probe, 8);
  EXPECT_EQ(by_eight.weights, 1) << "the last of the layer's own is too small to split";
  EXPECT_EQ(by_eight.bytes, 24576);
  EXPECT_EQ(by_eight.optimizer_bytes, 49152);
  EXPECT_EQ(by_eight.shared_bytes, 7680);
  EXPECT_EQ(by_eight.copy_bytes, 3840) << "no earlier layer reads the copy";
  EXPECT_EQ(by_eight.largest_bytes, 24576);
  EXPECT_EQ(by_eight.packed_bytes, 7680) << "30 rows are no multiple of 8: blocks of columns";
  EXPECT_EQ(SplitOver(probe, 36).bytes, 0) << "96 and 64 are no multiples of 36";
  EXPECT_EQ(SplitOver(probe, 25).bytes, 1400);
}

}  // namespace
}  // namespace meshwright::search
