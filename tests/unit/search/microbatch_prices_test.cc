// What is kept of numbers of microbatches while layouts are priced and given up.
#include "search/microbatch_prices.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "search/find_layout.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

LayoutCost CostOf(int64_t microbatches, double step_s, int64_t missing_bytes) {
  LayoutCost cost;
  cost.layout.microbatches = microbatches;
  cost.step_s = step_s;
  cost.missing_bytes = missing_bytes;
  return cost;
}

TEST(MicrobatchPrices, KeepsTheLeastOfEach) {
  MicrobatchPrices prices;
  prices.Add(CostOf(4, 0.2, 0));
  prices.Add(CostOf(4, 0.1, 0));
  prices.Add(CostOf(2, 0, 30));
  prices.Add(CostOf(2, 0, 20));
  prices.AddBound(CostOf(8, 0, 0).layout, 0.5);
  prices.AddBound(CostOf(8, 0, 0).layout, 0.4);
  LayoutCost other = CostOf(16, 0.3, 0);
  other.layout.degrees[planner::Axis::kTensor] = 2;
  prices.Add(other);
  // Stages that differ have the degrees of the first, and are no layout of these degrees.
  LayoutCost differ = CostOf(4, 0.05, 0);
  differ.layout.stage_degrees.resize(2);
  prices.Add(differ);
  prices.AddBound(differ.layout, 0.01);
  EXPECT_TRUE(PricesOf(differ.layout, prices.Take(), {}).empty());
  const auto own = PricesOf(CostOf(4, 0, 0).layout, prices.Take(), {});
  ASSERT_EQ(own.size(), 3u) << "of other degrees is another's";
  EXPECT_EQ(own[0].microbatches, 2);
  EXPECT_EQ(own[0].missing_bytes, 20);
  EXPECT_EQ(own[1].step_s, 0.1);
  EXPECT_EQ(own[2].least_s, 0.4);
  // What another search found of these degrees fits, too.
  const auto more = PricesOf(CostOf(4, 0, 0).layout, prices.Take(),
                             {CostOf(1, 0.15, 0), CostOf(8, 0.45, 0), other});
  ASSERT_EQ(more.size(), 4u);
  EXPECT_EQ(more[0].step_s, 0.15);
  EXPECT_EQ(more[3].step_s, 0.45);
  prices.Forget(CostOf(2, 0, 0).layout);
  EXPECT_EQ(PricesOf(CostOf(4, 0, 0).layout, prices.Take(), {}).size(), 2u);
}

// What decided a plan is what decided its own stages.
TEST(FindPlan, OneStageDiffersFromNone) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  job.parallel.stage_meshes = "1x2";
  const auto found = FindPlan(job, mesh::Topology::Local(2, 1), {}, SystemClock());
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(found->plan.layout.pipeline, 1);
  EXPECT_EQ(found->found.deciders.of(Decider::kStageSearch), 0);
  EXPECT_EQ(found->found.deciders.of(Decider::kEqualStages), 1);
}

// Of the plan's own degrees each number is known to be no faster by its estimate, or not to fit.
TEST(MicrobatchPrices, OfAPlanSayWhyNoOther) {
  ir::JobRequest job = SmallGpt2Job(4);
  job.parallel = ir::OpenParallel();
  job.parallel.data = job.parallel.tensor = 1;
  job.parallel.pipeline = 2;
  const auto found = FindLayout(job, mesh::Topology::Local(2, 1), {}, SystemClock());
  ASSERT_TRUE(found.has_value()) << found.error();
  const LayoutCost& best = found->best.front();
  const auto own = PricesOf(best.layout, found->microbatches, {});
  EXPECT_GT(own.size(), 1u);
  for (const MicrobatchPrice& price : own) {
    if (price.microbatches == best.layout.microbatches) {
      EXPECT_EQ(price.step_s, best.step_s);
      continue;
    }
    const double other_s = price.step_s > 0 ? price.step_s : price.least_s;
    EXPECT_TRUE(other_s >= best.step_s || (other_s == 0 && price.missing_bytes > 0))
        << price.microbatches << ": " << other_s;
  }
}

}  // namespace
}  // namespace meshwright::search
