#include "report/plan_explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/memory_series.h"
#include "report/plan_report.h"
#include "search/choice_problem.h"
#include "tests/still_clock.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

report::ShardingAlternative Way(const std::string& text, double reduce_s, bool chosen = false) {
  report::ShardingAlternative way;
  way.text = text;
  way.chosen = chosen;
  way.possible = true;
  way.costs = {0.010, reduce_s, 0};
  way.alone_s = reduce_s;
  way.bytes = 1 << 20;
  return way;
}

TEST(FormatShardings, MarksThePlansWayAndSaysWhyOthersLost) {
  report::ShardingExplanations answer;
  answer.planned = {0.010, 0, 0};
  report::ShardingAlternative impossible = Way("f32[3{tensor},2]", 0);
  impossible.possible = false;
  impossible.alone_s = search::kForbidden;
  answer.tables = {{"param w",
                    {"param w", "param v"},
                    0,
                    {Way("f32[3,2{tensor}]", 0, true), Way("f32[3,2]", 0.001), impossible}}};
  const std::vector<std::string> lines = Split(FormatShardings(answer, false), '\n');
  ASSERT_GE(lines.size(), 9u);
  EXPECT_EQ(lines[0], "param w, and 1 more that are split alike: param v");
  EXPECT_EQ(lines[1].substr(0, 67),
            "   ALONE      WORK   CHANGE   COMPUTE  REDUCE  RESHARD  BYTES     W");
  EXPECT_EQ(lines[2].substr(0, 67),
            "*             10 ms           10 ms    0 s     0 s      1.00 MiB  t");
  EXPECT_EQ(lines[3].substr(0, 67),
            "   +1 ms      11 ms  +10.0 %  10 ms    1 ms    0 s      1.00 MiB  1");
  EXPECT_THAT(lines[2], HasSubstr("the plan's"));
  EXPECT_THAT(lines[3], HasSubstr("1 ms more reducing"));
  EXPECT_THAT(lines[4], HasSubstr("not alone"));
  EXPECT_THAT(lines[4], HasSubstr("no step has it together with the rest"));
  EXPECT_THAT(lines[6], HasSubstr("chosen by the rules"));
  EXPECT_EQ(lines[8], "As planned: 10 ms, of it 10 ms computing, 0 s reducing, 0 s resharding.");
}

TEST(FormatStage, SaysWhatMovedBoundariesWouldCost) {
  report::StageExplanation stage;
  stage.stage = 1;
  stage.info.layers = {{3, 5}, {9, 9}};
  stage.info.mesh = {{{"data", 2}}, {DeviceIndex(2), DeviceIndex(3)}};
  stage.seconds = {{"forward", 0.001}, {"backward", 0.002}};
  stage.idle_s = 0.003;
  stage.memory.bytes[ir::MemoryKind::kWeights] = 1 << 20;
  stage.memory.total_bytes = 2 << 20;
  stage.budget_bytes = 1 << 30;
  stage.moves = {{2, 0, 1, 0.012, 4 << 20, ""}, {3, 1, 0, 0, 0, "device 0 needs more"}};
  EXPECT_EQ(FormatStage(stage, 0.010),
            "stage 1: layers 3-5, 9\n"
            "devices    2-3 data=2\n"
            "step       10 ms: forward 1 ms, backward 2 ms, waiting 3 ms\n"
            "memory     2.00 MiB of 1.00 GiB: weights 1.00 MiB (fullest device)\n"
            "sends      0 B a step and device\n"
            "IF INSTEAD                       STEP   CHANGE   MEMORY\n"
            "layer 2 from stage 0 to stage 1  12 ms  +20.0 %  4.00 MiB\n"
            "layer 3 from stage 1 to stage 0  -               -         does not fit: device 0 "
            "needs more\n"
            "no layer that crosses a boundary of this stage makes the step more than 0.5 % "
            "shorter\n");
  stage.moves[0].step_s = 0.009;
  EXPECT_THAT(FormatStage(stage, 0.010), HasSubstr("a layer could cross"));
}

class ExplainPlanOfTwoStages : public ::testing::Test {
 protected:
  void SetUp() override {
    auto planned = PlanSmallJob(
        {"parallelism.data_parallel_replicate_degree=1", "parallelism.tensor_parallel_degree=2",
         "parallelism.pipeline_parallel_degree=2", "parallelism.pipeline_parallel_schedule=1f1b"},
        topology_);
    ASSERT_TRUE(planned.has_value()) << planned.error();
    planned_ = *std::move(planned);
  }
  Result<std::string> Explain(const std::string& subject, bool json = false) {
    return ExplainPlan(planned_, topology_, subject, json, kStill);
  }

  const mesh::Topology topology_ = mesh::Topology::Local(4, 1);
  PlannedJob planned_;
};

TEST_F(ExplainPlanOfTwoStages, StagesByNumberAndByLayer) {
  const auto stage = Explain("stage 1");
  ASSERT_TRUE(stage.has_value()) << stage.error();
  EXPECT_THAT(*stage, HasSubstr("stage 1: layers 2-3"));
  EXPECT_THAT(*stage, HasSubstr("layer 1 from stage 0 to stage 1"));
  EXPECT_EQ(Explain("layer 2").value_or(""), *stage);
  const auto both = Explain("layers 1-2", true);
  ASSERT_TRUE(both.has_value()) << both.error();
  const auto object = nlohmann::json::parse(*both);
  EXPECT_EQ(object["stages"].size(), 2u);
  EXPECT_EQ(object["step_s"], planned_.forecast.step_s);
  EXPECT_GT(object["stages"][0]["seconds"]["forward"], 0);
}

TEST_F(ExplainPlanOfTwoStages, WhatIsNotThereIsAnError) {
  EXPECT_EQ(Explain("stage 7").error().code(), StatusCode::kNotFound);
  EXPECT_EQ(Explain("layers 3-9").error().code(), StatusCode::kNotFound);
  EXPECT_EQ(Explain("stage one").error().code(), StatusCode::kInvalidArgument);
  const auto near = Explain("transformer.h.0.attn.c_atn.weight");
  ASSERT_FALSE(near.has_value());
  EXPECT_THAT(near.error().message(), HasSubstr("did you mean"));
}

TEST_F(ExplainPlanOfTwoStages, MemoryByKindAndPlace) {
  const auto text = Explain("memory");
  ASSERT_TRUE(text.has_value()) << text.error();
  EXPECT_THAT(*text, HasSubstr("FULLEST DEVICE"));
  EXPECT_THAT(*text, HasSubstr("optimizer"));
  const auto object = nlohmann::json::parse(Explain("memory", true).value_or("{}"));
  ASSERT_EQ(object["memory"].size(), static_cast<size_t>(kMemoryKindCount));
  EXPECT_EQ(object["memory"][0]["kind"], "weights");
  EXPECT_GT(object["memory"][0]["device_bytes"], 0);
  EXPECT_EQ(object["memory"][0]["host_bytes"], 0);
}

TEST_F(ExplainPlanOfTwoStages, AParamHasOneChosenWay) {
  const auto text = Explain("transformer.h.0.attn.c_attn.weight", true);
  ASSERT_TRUE(text.has_value()) << text.error();
  const auto object = nlohmann::json::parse(*text);
  EXPECT_EQ(object["chosen_by"], "rules");
  ASSERT_EQ(object["tables"].size(), 2u) << "the param and the product that reads it";
  for (const auto& table : object["tables"]) {
    int chosen = 0;
    for (const auto& row : table["alternatives"]) chosen += row["chosen"] ? 1 : 0;
    EXPECT_EQ(chosen, 1) << table;
  }
}

TEST(ExplainMemory, SaysWhatFartherMemoriesHoldAndWhatNearerOnesWouldDo) {
  mesh::Topology topology = mesh::Topology::Local(1, 1);
  const std::vector<std::string> overrides = {
      "parallelism.data_parallel_replicate_degree=1", "parallelism.optimizer_memory=disk",
      "parallelism.weights_memory=host", "parallelism.offload_chunk_bytes=4096"};
  const auto far = PlanSmallJob(overrides, topology);
  ASSERT_TRUE(far.has_value()) << far.error();
  // So much that the weights do not fit beside it.
  topology.devices[0].memory_bytes = far->plan().memory[0].total_bytes;
  const auto planned = PlanSmallJob(overrides, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const auto text = ExplainPlan(*planned, topology, "memory", false, kStill);
  ASSERT_TRUE(text.has_value()) << text.error();
  EXPECT_THAT(*text, HasSubstr("STATE ON THE DISK"));
  EXPECT_THAT(*text, ContainsRegex("transformer.h.*.attn.c_attn.weight +0-3 +8 .* optimizer"));
  EXPECT_THAT(*text, Not(HasSubstr("h.0."))) << "layers are one line";
  EXPECT_THAT(*text, ContainsRegex("IF NEARER .*\nas planned +" +
                                   FormatDuration(planned->forecast.step_s)));
  // One device waits for nobody.
  const planner::Forecast& forecast = planned->forecast;
  EXPECT_GT(forecast.copies_of_total, 0);
  EXPECT_NEAR(forecast.copies_of_total, forecast.idle_of_total, 1e-9);
  const std::string waits = FormatForecast(forecast);
  EXPECT_THAT(
      waits,
      HasSubstr("% for the host and copies from its memory or a disk, 0.0 % for stages and"));
  EXPECT_THAT(*text, HasSubstr("optimizer in the host's memory "));
  EXPECT_THAT(*text, ContainsRegex("weights on the device +- +- +does not fit: device 0"));
  const auto json = ExplainPlan(*planned, topology, "memory", true, kStill);
  const auto nearer = nlohmann::json::parse(json.value_or("{}"))["nearer"];
  ASSERT_EQ(nearer.size(), 2u);
  EXPECT_EQ(nearer[0]["nearer"], "host");
  EXPECT_GT(nearer[0]["step_s"], 0);
  EXPECT_EQ(nearer[1]["kind"], "weights");
}

TEST(ExplainMemory, FoldsChunksOfLayersThatAreAlike) {
  const mesh::Topology topology = mesh::Topology::Local(1, 1);
  const auto planned =
      PlanSmallJob({"parallelism.data_parallel_replicate_degree=1",
                    "parallelism.optimizer_memory=host", "parallelism.offload_chunk_bytes=4096"},
                   topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const auto text = ExplainPlan(*planned, topology, "memory", false, kStill);
  ASSERT_TRUE(text.has_value()) << text.error();
  EXPECT_THAT(*text, HasSubstr("STATE IN THE HOST'S MEMORY"));
  EXPECT_THAT(*text, ContainsRegex("transformer\\.h\\.\\*\\.attn.c_attn.weight +0-3 +4 "));
  EXPECT_THAT(*text, Not(HasSubstr("h.0.")));
}

}  // namespace
}  // namespace meshwright::report
