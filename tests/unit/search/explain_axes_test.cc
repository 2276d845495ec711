// Reasons for axes are what the search and the planner say of another degree.
#include "report/plan_reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "search/find_layout.h"
#include "tests/still_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using report::AxisDecision;
using report::AxisReason;
using report::ExplainAxes;

using ::testing::HasSubstr;

std::map<std::string, AxisReason> Reasons(const ir::JobRequest& job, int devices) {
  std::map<std::string, AxisReason> reasons;
  const mesh::Topology topology = mesh::Topology::Local(devices);
  const auto found = FindPlan(job, topology, {}, kStill);
  EXPECT_TRUE(found.has_value()) << found.error();
  if (!found) return reasons;
  const auto forecast = planner::ForecastStep(found->plan, topology);
  EXPECT_TRUE(forecast.has_value()) << forecast.error();
  if (!forecast) return reasons;
  for (AxisReason& reason : ExplainAxes({job, topology, found->plan, *forecast}, kStill)) {
    reasons[reason.axis] = std::move(reason);
  }
  return reasons;
}

TEST(ExplainAxes, WhatTheJobPinsWasNotTried) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  job.parallel.tensor = 2;
  job.parallel.zero = 0;
  const auto reasons = Reasons(job, 2);
  ASSERT_EQ(reasons.size(), 7u);
  for (const char* axis : {"tensor", "zero"}) {
    EXPECT_EQ(reasons.at(axis).decision, AxisDecision::kPinned) << axis;
    EXPECT_EQ(reasons.at(axis).other, "") << axis;
  }
  EXPECT_EQ(reasons.at("tensor").degree, "2");
  EXPECT_EQ(reasons.at("tensor").key, "parallelism.tensor_parallel_degree");
}

TEST(ExplainAxes, OtherDegreesAreWhatTheSearchFindsWithThem) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  const auto reasons = Reasons(job, 2);
  const AxisReason& tensor = reasons.at("tensor");
  EXPECT_EQ(tensor.decision, AxisDecision::kSearched);
  ASSERT_FALSE(tensor.other.empty());
  ir::JobRequest pinned = job;
  pinned.parallel.tensor = std::stoll(tensor.other);
  const mesh::Topology topology = mesh::Topology::Local(2);
  const auto found = FindPlan(pinned, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  const auto forecast = planner::ForecastStep(found->plan, topology);
  ASSERT_TRUE(forecast.has_value());
  EXPECT_DOUBLE_EQ(tensor.other_s, forecast->step_s);
  EXPECT_NE(tensor.where, "");
}

TEST(ExplainAxes, WhatAModelLacksIsSaidAsThePlannerSaysIt) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  const auto reasons = Reasons(job, 2);
  EXPECT_EQ(reasons.at("expert").decision, AxisDecision::kSearched);
  EXPECT_EQ(reasons.at("expert").other_s, 0);
  EXPECT_THAT(reasons.at("expert").refused, HasSubstr("parallelism.expert_parallel_degree is 2"));
  // Rows can be shared token by token: that has a price.
  EXPECT_GT(reasons.at("context").other_s, 0) << reasons.at("context").refused;
}

TEST(ExplainAxes, WithoutAGroupThereIsNothingToTry) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  const auto reasons = Reasons(job, 1);
  EXPECT_THAT(reasons.at("sequence").refused, HasSubstr("tensor is 1"));
  EXPECT_THAT(reasons.at("zero").refused, HasSubstr("data is 1"));
  EXPECT_THAT(reasons.at("pipeline").refused, HasSubstr("one device"));
}

TEST(ExplainAxes, BesideAPinnedContextDegreeAllElseIsSearched) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  job.parallel.context = 2;
  const auto reasons = Reasons(job, 4);
  EXPECT_EQ(reasons.at("context").decision, AxisDecision::kPinned);
  EXPECT_EQ(reasons.at("context").degree, "2");
  for (const char* axis : {"data", "tensor"}) {
    EXPECT_EQ(reasons.at(axis).decision, AxisDecision::kSearched) << axis;
    EXPECT_GT(reasons.at(axis).other_s, 0) << axis << ": " << reasons.at(axis).refused;
  }
}

}  // namespace
}  // namespace meshwright::search
