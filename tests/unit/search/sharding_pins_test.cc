#include "search/sharding_pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/find_layout.h"
#include "tests/still_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using ::testing::HasSubstr;

ir::JobRequest SmallJob(int64_t data, int64_t tensor, const std::string& pins) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.sharding_pins = pins;
  return job;
}

std::string ErrorOf(const std::string& pins) {
  const Status status = CheckShardingPins(SmallJob(1, 2, pins));
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

TEST(ShardingPins, AreReadAndWritten) {
  const auto pins = ParseShardingPins(" *.w = [_, 8{tensor,data} , _];a.b=[] ; ");
  ASSERT_TRUE(pins.has_value()) << pins.error();
  ASSERT_EQ(pins->size(), 2u);
  EXPECT_EQ((*pins)[0].pattern, "*.w");
  EXPECT_EQ((*pins)[0].sizes, (std::vector<int64_t>{0, 8, 0}));
  EXPECT_EQ(FormatPinnedSharding((*pins)[0].sharding), "[_,_{tensor,data},_]");
  EXPECT_EQ((*pins)[1].sharding.dims.size(), 0u);
  EXPECT_TRUE(ParseShardingPins("")->empty());
}

TEST(ShardingPins, ErrorsNameThePin) {
  for (const char* bad : {"w", "w=", "=[_]", "w=[x]", "w=[_{pipe}]", "w=[_{data]", "w=[0]",
                          "w=[_{data},_{data}]", "w=[_"}) {
    const auto pins = ParseShardingPins(bad);
    ASSERT_FALSE(pins.has_value()) << bad;
    EXPECT_THAT(pins.error().message(), HasSubstr("parallel.sharding_pins: '")) << bad;
  }
  EXPECT_THAT(ErrorOf("*.c_atn.weight=[_,_,_,_]"), HasSubstr("no weight is called"));
  EXPECT_THAT(ErrorOf("transformer.wte.wight=[_,_]"), HasSubstr("did you mean"));
  EXPECT_THAT(ErrorOf("*.c_fc.weight=[_]"), HasSubstr("whose dims are not"));
  EXPECT_THAT(ErrorOf("*.c_fc.weight=[65,_]"), HasSubstr("whose dims are not"));
  EXPECT_THAT(ErrorOf("*.c_fc.weight=[_,_]; *.0.mlp.*.weight=[_,_{tensor}]"),
              HasSubstr("want different shardings"));
  EXPECT_EQ(ErrorOf("*.c_fc.weight=[_,_]; *.0.mlp.c_fc.weight=[64,256]"), "");
}

TEST(ShardingPins, AxesMustDivideUnlessTheirSizeIsOne) {
  const ir::JobRequest job = SmallJob(1, 3, "");
  planner::Layout layout;
  layout.degrees[planner::Axis::kTensor] = 3;
  const std::string pins = "*.c_fc.weight=[_,_{tensor,data}]";
  const auto refused = PinnedParams(pins, job.main().graph, layout);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("c_fc.weight"));
  layout.degrees[planner::Axis::kTensor] = 2;
  const auto pinned = PinnedParams(pins, job.main().graph, layout);
  ASSERT_TRUE(pinned.has_value()) << pinned.error();
  ASSERT_EQ(pinned->size(), 2u);
  EXPECT_EQ(FormatPinnedSharding(pinned->begin()->second), "[_,_{tensor}]");
}

// Every pinned weight of a plan is as pinned.
void ExpectHonoured(const planner::Plan& plan, const ir::JobRequest& job) {
  const auto pinned = PinnedParams(job.parallel.sharding_pins, job.main().graph, plan.layout);
  ASSERT_TRUE(pinned.has_value()) << pinned.error();
  size_t found = 0;
  for (const planner::ParamInfo& param : plan.params) {
    const auto it = pinned->find(param.name);
    if (it == pinned->end()) continue;
    ++found;
    EXPECT_EQ(param.sharding, it->second) << param.name;
  }
  EXPECT_EQ(found, pinned->size());
}

TEST(PinnedPlan, TheRulesHonourWhatTheyCan) {
  // By rows instead of by columns.
  const ir::JobRequest job = SmallJob(1, 2, "*.c_fc.weight=[_{tensor},_]");
  const auto found = FindPlan(job, mesh::Topology::Local(2, 1), {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  ExpectHonoured(found->plan, job);
  EXPECT_FALSE(found->by_search);
}

TEST(PinnedPlan, WhatTheRulesCannotHonourIsSearched) {
  const ir::JobRequest job = SmallJob(2, 2, "*.c_fc.weight=[_{data},_{tensor}]");
  const auto found = FindPlan(job, mesh::Topology::Local(4, 1), {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  ExpectHonoured(found->plan, job);
  EXPECT_TRUE(found->by_search);
  const DeciderCounts& deciders = found->found.deciders;
  EXPECT_EQ(deciders.of(Decider::kSearch), 1);
  EXPECT_EQ(deciders.of(Decider::kRules), 0);
  EXPECT_GE(deciders.of(Decider::kMessages) + deciders.of(Decider::kBranches), 1);
  EXPECT_THAT(found->plan.notes.back(), HasSubstr("the rules cannot store"));
}

TEST(PinnedPlan, TheSearchHonoursPins) {
  ir::JobRequest job =
      SmallJob(2, 2, "transformer.wte.weight=[_,_]; *.mlp.c_proj.weight=[_{tensor},_]");
  job.parallel.shardings = "search";
  const auto found = FindPlan(job, mesh::Topology::Local(4, 1), {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  ExpectHonoured(found->plan, job);
}

TEST(PinnedPlan, OpenDegreesTakePinsAlong) {
  ir::JobRequest job = SmallJob(0, 0, "*.c_fc.weight=[_{tensor},_]");
  job.parallel = ir::OpenParallel();
  job.parallel.sharding_pins = "*.c_fc.weight=[_{tensor},_]";
  const auto found = FindPlan(job, mesh::Topology::Local(4, 1), {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  ExpectHonoured(found->plan, job);
}

TEST(PinnedPlan, WhatNothingAllowsIsAnError) {
  const ir::JobRequest job = SmallJob(1, 3, "*.c_fc.weight=[_{tensor},_]");
  const auto found = FindPlan(job, mesh::Topology::Local(3, 1), {}, kStill);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace meshwright::search
