#include "planner/stages.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>

#include "planner/schedule.h"

namespace meshwright::planner {
namespace {

double Worst(const std::vector<double>& cost, const std::vector<int>& part, int parts) {
  std::vector<double> sum(static_cast<size_t>(parts), 0);
  for (size_t i = 0; i < cost.size(); ++i) sum[static_cast<size_t>(part[i])] += cost[i];
  return *std::max_element(sum.begin(), sum.end());
}

// Least maximum over all contiguous splits, by trying every set of cuts.
double BruteForce(const std::vector<double>& cost, size_t begin, int parts) {
  if (parts == 1) {
    double sum = 0;
    for (size_t i = begin; i < cost.size(); ++i) sum += cost[i];
    return sum;
  }
  double best = std::numeric_limits<double>::infinity();
  double head = 0;
  for (size_t i = begin; i + static_cast<size_t>(parts) - 1 < cost.size(); ++i) {
    head += cost[i];
    best = std::min(best, std::max(head, BruteForce(cost, i + 1, parts - 1)));
  }
  return best;
}

TEST(SplitByCost, EqualsBruteForceAndKeepsEveryStageNonEmpty) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes =
        *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 9), rc::gen::inRange(1, 20));
    const int parts = *rc::gen::inRange(1, static_cast<int>(sizes.size()) + 1);
    const std::vector<double> cost(sizes.begin(), sizes.end());
    const std::vector<int> part = SplitByCost(cost, parts);
    RC_ASSERT(std::is_sorted(part.begin(), part.end()));
    for (int p = 0; p < parts; ++p) RC_ASSERT(std::count(part.begin(), part.end(), p) > 0);
    RC_ASSERT(Worst(cost, part, parts) == BruteForce(cost, 0, parts));
  }));
}

TEST(Schedule, OneForwardOneBackwardGolden) {
  const auto schedule = MakeSchedule("1f1b", 4, 5);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(FormatSchedule((*schedule)[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

TEST(Schedule, GPipeGolden) {
  const auto schedule = MakeSchedule("gpipe", 2, 3);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, EveryMicrobatchRunsOnceEachWay) {
  EXPECT_TRUE(rc::check([] {
    const int stages = *rc::gen::inRange(1, 9);
    const int microbatches = *rc::gen::inRange(1, 17);
    const auto name = *rc::gen::element(std::string("gpipe"), std::string("1f1b"));
    const auto schedule = MakeSchedule(name, stages, microbatches);
    RC_ASSERT(schedule.has_value());
    for (int s = 0; s < stages; ++s) {
      int forward = 0, backward = 0, most = 0;
      for (const ScheduleStep& step : (*schedule)[static_cast<size_t>(s)]) {
        int& next = step.phase == ir::Phase::kForward ? forward : backward;
        RC_ASSERT(step.microbatch == next++);
        RC_ASSERT(backward <= forward);
        most = std::max(most, forward - backward);
      }
      RC_ASSERT(forward == microbatches && backward == microbatches);
      RC_ASSERT(most == (name == "gpipe" ? microbatches : std::min(microbatches, stages - s)));
    }
  }));
}

TEST(Schedule, UnknownNameListsTheKnown) {
  const auto schedule = MakeSchedule("zigzag", 2, 2);
  ASSERT_FALSE(schedule.has_value());
  EXPECT_NE(schedule.error().message().find("gpipe, 1f1b"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::planner
