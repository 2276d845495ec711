// Of plans with about equal forecasts: the one whose devices wait for one another less often.
#include "search/nearest_plans.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

size_t Choose(const std::vector<ForecastPlan>& plans) { return ChooseOfNearest(plans); }

TEST(ChooseOfNearest, TakesTheFastestUnlessFarFewerCallsCostLittle) {
  EXPECT_EQ(Choose({{1.0, 80}}), 0U);
  EXPECT_EQ(Choose({{1.0, 80}, {0.9, 80}, {1.1, 1}}), 1U)
      << "10 % is more than forecasts are wrong";
  EXPECT_EQ(Choose({{1.0, 80}, {1.019, 40}}), 1U);
  EXPECT_EQ(Choose({{1.0, 80}, {1.021, 40}}), 0U);
  EXPECT_EQ(Choose({{1.0, 80}, {1.019, 41}}), 0U) << "about as many calls";
  EXPECT_EQ(Choose({{1.015, 10}, {1.0, 80}, {1.01, 40}, {1.01, 39}}), 2U) << "the first of equals";
  EXPECT_EQ(Choose({{1.0, 0}, {1.0, 0}}), 0U) << "a single device calls nobody";
}

TEST(SlowdownOf, IsMeasuredByTheFastest) {
  const std::vector<ForecastPlan> plans = {{1.0, 1}, {0.5, 1}, {0.75, 1}};
  EXPECT_EQ(FastestOf(plans), 1U);
  EXPECT_DOUBLE_EQ(SlowdownOf(plans[2], plans), 1.5);
  EXPECT_DOUBLE_EQ(SlowdownOf(plans[1], plans), 1);
}

TEST(MayReplace, WhatIsNearTheFastestAndHasNoMoreCalls) {
  const std::vector<ForecastPlan> plans = {{1.0, 80}, {1.019, 80}, {1.019, 81}, {1.021, 10}};
  EXPECT_TRUE(MayReplace(plans[1], plans[0], plans));
  EXPECT_FALSE(MayReplace(plans[2], plans[0], plans)) << "more calls";
  EXPECT_FALSE(MayReplace(plans[3], plans[0], plans)) << "too slow";
}

TEST(CallsOf, CountsCollectivesAndMessagesOfAStep) {
  const ir::JobRequest job = SmallGpt2Job(2);
  const auto calls = [&](int64_t data, int64_t pipeline, int64_t microbatches, int zero) {
    planner::Layout layout;
    layout.degrees[planner::Axis::kData] = data;
    layout.pipeline = pipeline;
    layout.microbatches = microbatches;
    layout.zero = zero;
    const auto plan =
        planner::MakePlanOf(job, mesh::Topology::Local(static_cast<int>(data * pipeline)), layout);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    return CallsOf(*plan);
  };
  EXPECT_EQ(calls(1, 1, 1, 0), 0);
  // Each microbatch sends its activation one way and its gradient the other.
  EXPECT_EQ(calls(1, 2, 4, 0) - calls(1, 2, 2, 0), 2 * 2);
  // ZeRO scatters and gathers one weight at a time, and scatters with every microbatch.
  EXPECT_GT(calls(2, 1, 1, 1), 4 * calls(2, 1, 1, 0));
  EXPECT_GT(calls(2, 1, 2, 2), calls(2, 1, 2, 1));
}

}  // namespace
}  // namespace meshwright::search
