#include "report/why.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/still_clock.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

WhyFigures Figures() {
  WhyFigures figures;
  figures.job = "job 3 (small)";
  figures.steps = {1, 3};
  figures.forecast.Of(StepPart::kCompute) = 0.8;
  figures.forecast.Of(StepPart::kBubble) = 0.2;
  for (const int rank : {0, 1, 2}) {
    StepParts& parts = figures.measured.ranks[rank];
    parts.Of(StepPart::kCompute) = rank == 2 ? 1.4 : 0.7;
    parts.Of(StepPart::kStragglers) = rank == 2 ? 0 : 0.7;
  }
  figures.measured.mean.Of(StepPart::kCompute) = 0.9;
  figures.measured.mean.Of(StepPart::kInput) = 0.1;
  figures.measured.mean.Of(StepPart::kStragglers) = 0.5;
  figures.measured.mean.Of(StepPart::kBetween) = 0.5;
  figures.advice_from_s = 1;
  return figures;
}

TEST(Why, SaysWhereTimeGoesInTenLinesAndWhoIsSlow) {
  const std::string text = FormatWhy(Figures());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 10) << text;
  EXPECT_THAT(text, HasSubstr("job 3 (small), steps 2 to 4: 2 s a step, 1 s by forecast"));
  EXPECT_THAT(text, HasSubstr("(2.00 x)"));
  EXPECT_THAT(text, HasSubstr("rank 2 2.00 x"));
  EXPECT_THAT(text, Not(HasSubstr("checkpoints")));
  EXPECT_THAT(text, Not(HasSubstr("clocks")));
  EXPECT_THAT(text, HasSubstr("no neighbouring plan is forecast to be faster"));
  const auto json = nlohmann::json::parse(WhyJson(Figures()));
  EXPECT_EQ(json.at("measured").at("input_s"), 0.1);
  EXPECT_EQ(json.at("forecast").at("bubble_s"), 0.2);
  EXPECT_EQ(json.at("ranks").at("2").at("compute_s"), 1.4);
}

TEST(Why, ARankAloneIsNotComparedWithOthers) {
  WhyFigures figures = Figures();
  figures.measured.ranks = {{0, figures.measured.ranks.at(0)}};
  figures.measured.ranks.at(0).Of(StepPart::kStragglers) = 0;
  figures.measured.mean.Of(StepPart::kStragglers) = 0;
  figures.forecast.Of(StepPart::kBubble) = 0;
  const std::string text = FormatWhy(figures);
  for (const char* of_several : {"slower", "stages", "communication", "rank"}) {
    EXPECT_THAT(text, Not(HasSubstr(of_several)));
  }
  EXPECT_THAT(text, HasSubstr("compute"));
  EXPECT_THAT(text, HasSubstr("input"));
  // What was measured all the same is shown.
  figures.measured.mean.Of(StepPart::kCommunication) = 0.1;
  EXPECT_THAT(FormatWhy(figures), HasSubstr("exposed communication"));
}

TEST(Why, CheckpointsAndClocksAreSaidWhereTheyMatter) {
  WhyFigures figures = Figures();
  figures.saves = 2;
  figures.checkpoint_s = 0.01;
  figures.clock_error_ns = 250'000;
  const std::string text = FormatWhy(figures);
  EXPECT_THAT(text, HasSubstr("mean of 2 saves"));
  EXPECT_THAT(text, HasSubstr("clocks of hosts agree to 250"));
}

// A pipeline with one microbatch is idle half of its time: more of them are faster, and what is
// said of a neighbour is what a plan of it says.
TEST(Why, NeighboursAreForecastAsPlansAre) {
  const std::vector<std::string> overrides = {"parallelism.pipeline_parallel_degree=2",
                                              "parallelism.pipeline_parallel_microbatches=1"};
  const mesh::Topology topology = mesh::Topology::Local(2);
  const auto planned = PlanSmallJob(overrides, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const auto advice =
      FindAdvice(planned->prepared.request, planned->plan().layout, topology,
                 planned->forecast.step_s, {.timeout_ms = 60'000, .most = 10}, kStill);
  ASSERT_FALSE(advice.empty());
  EXPECT_TRUE(std::is_sorted(advice.begin(), advice.end(),
                             [](const Advice& a, const Advice& b) { return a.step_s < b.step_s; }));
  const auto more = std::find_if(advice.begin(), advice.end(), [](const Advice& each) {
    return each.text == "parallelism.pipeline_parallel_microbatches = 2";
  });
  ASSERT_NE(more, advice.end());
  const auto other = PlanSmallJob(
      {"parallelism.pipeline_parallel_degree=2", "parallelism.pipeline_parallel_microbatches=2"},
      topology);
  ASSERT_TRUE(other.has_value()) << other.error();
  EXPECT_DOUBLE_EQ(more->step_s, other->forecast.step_s);
  EXPECT_LT(more->step_s, planned->forecast.step_s);
  for (const Advice& each : advice) EXPECT_LT(each.step_s, planned->forecast.step_s) << each.text;
}

}  // namespace
}  // namespace meshwright::report
