// Variants of a layout with fewer collectives, and the choice among them.
#include "search/nearest_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "planner/plan.h"
#include "tests/fake_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using planner::Recompute;

ir::JobRequest JobOfParts() {
  ir::JobRequest job = OpenJob();
  job.parallel.part_layers = "2,1";
  return job;
}

planner::Layout LayoutOf(int64_t microbatches, int64_t zero) {
  planner::Layout layout;
  layout.degrees[planner::Axis::kData] = 2;
  layout.degrees[planner::Axis::kTensor] = 4;
  layout.microbatches = microbatches;
  layout.zero = zero;
  layout.recompute = {Recompute::kFull, Recompute::kNone};
  return layout;
}

TEST(JobsWithFewerMicrobatches, AreThoseOfItsDivisorsFromTheFewest) {
  const auto jobs = JobsWithFewerMicrobatches(JobOfParts(), LayoutOf(6, 1));
  ASSERT_EQ(jobs.size(), 3U);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const ir::ParallelSpec& pinned = jobs[i].parallel;
    EXPECT_EQ(pinned.microbatches, static_cast<int64_t>(i + 1));
    EXPECT_EQ(pinned.data, 2);
    EXPECT_EQ(pinned.tensor, 4);
    EXPECT_EQ(pinned.zero, -1) << "what fits without may need it with more rows at once";
    EXPECT_EQ(pinned.recompute, "full") << "nothing more is computed again";
    EXPECT_EQ(pinned.recompute_layers, "0 full, 1 none");
    EXPECT_EQ(pinned.part_layers, "2,1");
  }
}

TEST(JobsWithFewerMicrobatches, AreNoneWhereStagesNeedThemOrTheJobSaysHowMany) {
  EXPECT_TRUE(JobsWithFewerMicrobatches(JobOfParts(), LayoutOf(1, 0)).empty());
  planner::Layout staged = LayoutOf(6, 0);
  staged.pipeline = 2;
  EXPECT_TRUE(JobsWithFewerMicrobatches(JobOfParts(), staged).empty());
  ir::JobRequest pinned = JobOfParts();
  pinned.parallel.microbatches = 6;
  EXPECT_TRUE(JobsWithFewerMicrobatches(pinned, LayoutOf(6, 0)).empty());
}

TEST(JobsWithoutZero, HaveTheSameDegreesAndMicrobatches) {
  const auto jobs = JobsWithoutZero(JobOfParts(), LayoutOf(6, 3));
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].parallel.zero, 0);
  EXPECT_EQ(jobs[0].parallel.microbatches, 6);
  EXPECT_EQ(jobs[0].parallel.tensor, 4);
  EXPECT_TRUE(JobsWithoutZero(JobOfParts(), LayoutOf(6, 0)).empty());
  ir::JobRequest asked = JobOfParts();
  asked.parallel.zero = 2;
  EXPECT_TRUE(JobsWithoutZero(asked, LayoutOf(6, 2)).empty());
  planner::Layout meshes = LayoutOf(6, 2);
  meshes.stage_degrees = {{2, 1}, {1, 1}};
  EXPECT_TRUE(JobsWithoutZero(JobOfParts(), meshes).empty());
}

// A device whose small products are `faster` than large ones, relative to them.
mesh::Topology DeviceForSmallProducts(double faster) {
  mesh::Topology topology = mesh::Topology::Local(1);
  auto profile = std::make_shared<mesh::DeviceProfile>(*mesh::DefaultDeviceProfile());
  profile->launch_s = 0;
  for (mesh::KernelRates& rates : profile->kernels) {
    rates.curves = {};
    rates.curves[static_cast<size_t>(ir::DType::kF32)] = {{3e5, 5e9 * faster}, {3e6, 5e9}};
  }
  topology.devices[0].profile = std::move(profile);
  return topology;
}

// What a rate that falls by some percent says of microbatches is less than estimates are worth.
TEST(FindPlan, MoreMicrobatchesMustSaveMoreThanEstimatesAreWorth) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  const auto plan = FindPlan(job, DeviceForSmallProducts(2.15), {}, SystemClock());
  ASSERT_TRUE(plan.has_value()) << plan.error();
  EXPECT_EQ(plan->plan.layout.microbatches, 1);
  EXPECT_GT(plan->found.deciders.of(Decider::kShortPrograms), 0);
  const auto faster = FindPlan(job, DeviceForSmallProducts(3), {}, SystemClock());
  ASSERT_TRUE(faster.has_value()) << faster.error();
  EXPECT_GT(faster->plan.layout.microbatches, 1);
}

// Two devices on one core, and what is priced about equal for them.
class ChooseNearestOf : public testing::Test {
 protected:
  static constexpr int64_t kTimeoutMs = 1000;

  ChooseNearestOf() {
    job_ = SmallGpt2Job(2);
    job_.parallel = ir::OpenParallel();
    topology_ = mesh::Topology::Local(2);
    topology_.hosts[topology_.devices[0].host].cores = 1;
  }

  static LayoutCost Priced(int64_t data, int64_t microbatches, int64_t zero, double step_s) {
    LayoutCost cost;
    cost.layout.degrees[planner::Axis::kData] = data;
    cost.layout.microbatches = microbatches;
    cost.layout.zero = zero;
    cost.step_s = step_s;
    return cost;
  }

  // Makes what `makes_` allows and notes what was asked for.
  NearestChoice Choose(const std::vector<LayoutCost>& priced) {
    const SearchTime time(kTimeoutMs, kTimeoutMs, clock_);
    const NearestInput input = {job_, topology_, options_, time,
                                [&](const planner::Layout& layout) -> Result<planner::Plan> {
                                  asked_.push_back(layout);
                                  clock_.AdvanceMs(ms_per_plan_);
                                  if (!makes_) return Fail(ResourceExhausted("does not fit"));
                                  return planner::MakePlanOf(job_, topology_, layout);
                                }};
    auto first = planner::MakePlanOf(job_, topology_, priced.front().layout);
    EXPECT_TRUE(first.has_value()) << first.error();
    auto choice = ChooseNearest(input, priced, *std::move(first));
    EXPECT_TRUE(choice.has_value()) << choice.error();
    return *std::move(choice);
  }

  ir::JobRequest job_;
  mesh::Topology topology_;
  FindOptions options_;
  FakeClock clock_;
  std::vector<planner::Layout> asked_;
  bool makes_ = true;
  int64_t ms_per_plan_ = 0;
};

TEST_F(ChooseNearestOf, VariantsWithFewerCallsAreMadeAndCompared) {
  const NearestChoice choice = Choose({Priced(2, 4, 1, 1.0)});
  EXPECT_FALSE(choice.timed_out);
  EXPECT_TRUE(choice.changed);
  EXPECT_EQ(choice.plan.layout.microbatches, 1);
  const bool without_zero = std::any_of(asked_.begin(), asked_.end(),
                                        [](const auto& layout) { return layout.zero == 0; });
  EXPECT_TRUE(without_zero);
  EXPECT_EQ(choice.best.front().layout.ToString(), choice.plan.layout.ToString());
}

TEST_F(ChooseNearestOf, WhatIsFarFromTheFastestForecastIsNotVaried) {
  // The price does not say so: two devices on a core are no faster than one, and weights that are
  // scattered are slower.
  Choose({Priced(2, 4, 3, 1.0), Priced(1, 4, 0, 1.1), Priced(2, 4, 2, 1.1)});
  ASSERT_GE(asked_.size(), 3U);
  EXPECT_EQ(asked_[1].data(), 2) << "what was priced";
  for (size_t i = 2; i < asked_.size(); ++i) EXPECT_EQ(asked_[i].data(), 1) << "a variant";
  EXPECT_LT(asked_[2].microbatches, 4);
}

TEST_F(ChooseNearestOf, WhatDoesNotFitIsNoChoice) {
  makes_ = false;
  const NearestChoice choice = Choose({Priced(2, 4, 1, 1.0), Priced(1, 4, 0, 1.0)});
  EXPECT_GE(asked_.size(), 2U);
  EXPECT_EQ(choice.best.size(), 1U);
  EXPECT_EQ(choice.plan.layout.zero, 1);
  EXPECT_FALSE(choice.changed);
  EXPECT_FALSE(choice.timed_out);
}

TEST_F(ChooseNearestOf, WhatIsMuchSlowerByItsPriceIsNotMade) {
  job_.parallel.microbatches = 4;
  Choose({Priced(2, 4, 0, 1.0), Priced(1, 4, 0, 1.3)});
  EXPECT_TRUE(asked_.empty());
}

TEST_F(ChooseNearestOf, WhereTheTimeIsUpItSaysSo) {
  ms_per_plan_ = kTimeoutMs + 1;
  const NearestChoice choice =
      Choose({Priced(2, 4, 1, 1.0), Priced(1, 4, 0, 1.0), Priced(1, 8, 0, 1.0)});
  EXPECT_EQ(asked_.size(), 1U);
  EXPECT_EQ(choice.best.size(), 2U);
  EXPECT_TRUE(choice.timed_out);
}

size_t ChooseOf(const std::vector<ForecastPlan>& plans) { return ChooseOfNearest(plans); }

TEST(ChooseOfNearest, TakesTheFastestUnlessFarFewerCallsCostLittle) {
  EXPECT_EQ(ChooseOf({{1.0, 80}}), 0U);
  EXPECT_EQ(ChooseOf({{1.0, 80}, {0.9, 80}, {1.1, 1}}), 1U)
      << "10 % is more than forecasts are wrong";
  EXPECT_EQ(ChooseOf({{1.0, 80}, {1.019, 40}}), 1U);
  EXPECT_EQ(ChooseOf({{1.0, 80}, {1.021, 40}}), 0U);
  EXPECT_EQ(ChooseOf({{1.0, 80}, {1.019, 41}}), 0U) << "about as many calls";
  EXPECT_EQ(ChooseOf({{1.015, 10}, {1.0, 80}, {1.01, 40}, {1.01, 39}}), 2U)
      << "the first of equals";
  EXPECT_EQ(ChooseOf({{1.0, 0}, {1.0, 0}}), 0U) << "a single device calls nobody";
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
