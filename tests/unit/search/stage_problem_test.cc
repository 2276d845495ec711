#include "search/stage_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/unit/search/stage_problems.h"

namespace meshwright::search {
namespace {

// Two layers of 3 s on one device, on a host of two.
StageProblem TwoLayers() {
  StageProblem problem = EvenProblem(2, 4, {ClassOf("gpu", {2}, 100)});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 3));
  for (LayerCost& cost : problem.options[0].layers) {
    cost.weight_s = 1;
    cost.update_s = 0.25;
    cost.gradient_sync_s = 0.5;
    cost.state_bytes = 20;
    cost.activation_bytes = 10;
    cost.transient_bytes = 5;
  }
  problem.transfer_s = [](int, int, int64_t bytes) { return static_cast<double>(bytes) / 1000; };
  return problem;
}

const std::vector<StageChoice> kTwoStages = {{0, 1, 0}, {1, 2, 0}};

TEST(EvaluateStages, FollowsTheFormulasOfTheHeader) {
  const StageEvaluation evaluation = EvaluateStages(TwoLayers(), kTwoStages);
  ASSERT_TRUE(evaluation.feasible());
  EXPECT_DOUBLE_EQ(evaluation.stages[0].fill_s, 3 + 1);
  EXPECT_DOUBLE_EQ(evaluation.stages[0].period_s, 3 + 1);
  EXPECT_DOUBLE_EQ(evaluation.stages[1].fill_s, 3);
  EXPECT_DOUBLE_EQ(evaluation.stages[1].tail_s, 0.75);
  EXPECT_DOUBLE_EQ(evaluation.step_s, 4 + 3 + 3 * 4 + 0.75);
  EXPECT_EQ(evaluation.stages[0].in_flight, 2);
  EXPECT_EQ(evaluation.stages[0].memory_bytes, 20 + 2 * 10 + 5);
  EXPECT_EQ(evaluation.stages[1].memory_bytes, 20 + 10 + 5);
  EXPECT_EQ(evaluation.stages[1].place.first_device, 1);
}

TEST(EvaluateStages, DelayedWeightGradientsLeaveTheFillForTheTail) {
  StageProblem problem = TwoLayers();
  problem.schedule.delayed_weight = 2;
  EXPECT_DOUBLE_EQ(EvaluateStages(problem, kTwoStages).step_s, 2 + 1 + 3 * 4 + 2.75);
  // One stage has no bubble to hide them in.
  const std::vector<StageChoice> one = {{0, 2, 0}};
  EXPECT_DOUBLE_EQ(EvaluateStages(problem, one).step_s, 4 * 6 + 1.5);
}

TEST(EvaluateStages, NamesEveryViolation) {
  StageProblem problem = TwoLayers();
  problem.classes[0] = ClassOf("gpu", {1}, 40);
  problem.pins.stages = 1;
  const StageEvaluation evaluation = EvaluateStages(problem, kTwoStages);
  EXPECT_EQ(evaluation.worst_stage, 0);
  EXPECT_THAT(evaluation.violations,
              testing::ElementsAre(
                  "stage 0 of 2 (layers 0..0, gpu 1x1, \"even\") needs 45 bytes, 5 more than a "
                  "device has, with 2 microbatches in flight",
                  "2 submeshes do not fit the hosts of class gpu", "2 stages instead of 1"));
  const std::vector<StageChoice> gap = {{1, 2, 0}};
  EXPECT_THAT(EvaluateStages(problem, gap).violations,
              testing::ElementsAre("the 1 stages do not have 2 layers in order"));
}

TEST(EvaluateStages, MemorySaturates) {
  LayerCost cost;
  cost.activation_bytes = int64_t{1} << 60;
  EXPECT_EQ(StageMemoryBytes(cost, 1000), std::numeric_limits<int64_t>::max());
}

TEST(PipelineModels, SayWhatIsInFlight) {
  EXPECT_EQ(GpipeModel().in_flight(3, 8), 8);
  EXPECT_EQ(OneForwardOneBackwardModel().in_flight(3, 8), 3);
  EXPECT_EQ(OneForwardOneBackwardModel().in_flight(3, 2), 2);
}

std::string Message(const StageProblem& problem) { return CheckStageProblem(problem).ToString(); }

TEST(CheckStageProblem, NamesWhatIsWrong) {
  const StageProblem good = TwoLayers();
  ASSERT_TRUE(CheckStageProblem(good).ok());
  StageProblem bad = good;
  bad.options[0].layers.pop_back();
  EXPECT_THAT(Message(bad), testing::HasSubstr("option 0 (\"even\") has costs of 1 layers, not 2"));
  bad = good;
  bad.options[0].layers[1].forward_s = -1;
  EXPECT_THAT(Message(bad), testing::HasSubstr("in layer 1 takes -1 s"));
  bad = good;
  bad.options[0].layers[1].weight_s = 9;
  EXPECT_THAT(Message(bad), testing::HasSubstr("9 s of weight gradients in a backward of 2 s"));
  bad = good;
  bad.options[0].device_class = 1;
  EXPECT_THAT(Message(bad), testing::HasSubstr("device class 1 of 1"));
  bad = good;
  bad.boundary_bytes.clear();
  EXPECT_THAT(Message(bad), testing::HasSubstr("2 layers have 0 boundaries"));
  bad = good;
  bad.schedule.in_flight = [](int, int) { return 0; };
  EXPECT_THAT(Message(bad), testing::HasSubstr("0 microbatches in flight 1 stages from the end"));
}

TEST(CheckStageProblem, NamesPinsThatContradictEachOther) {
  StageProblem problem = TwoLayers();
  problem.pins.begins = {{0, 1}};
  problem.pins.stages = 1;
  EXPECT_THAT(Message(problem), testing::HasSubstr("1 stages are pinned, and the beginnings of 2"));
  problem.pins = {};
  problem.pins.begins = {{0, 2}};
  EXPECT_THAT(Message(problem), testing::HasSubstr("begin at layers [0, 2]"));
  problem.pins = {};
  problem.pins.stages = 3;
  EXPECT_THAT(Message(problem), testing::HasSubstr("3 stages are pinned for 2 layers"));
  problem.pins = {};
  problem.pins.options = {{0, 0}};
  EXPECT_THAT(Message(problem), testing::HasSubstr("but not the number of stages"));
  problem.pins.stages = 2;
  problem.options.push_back(problem.options[0]);
  problem.options[1].shape = {1, 2};
  problem.pins.options = {{0, 0}, {0, 1}};
  EXPECT_THAT(Message(problem),
              testing::HasSubstr("stage 0 is pinned to option 0 and to option 1"));
  problem.pins.options = {{0, 0}, {1, 1}};
  EXPECT_THAT(Message(problem),
              testing::HasSubstr("do not fit the hosts of class \"gpu\": stage 0: \"even\" (1x1), "
                                 "stage 1: \"even\" (1x2)"));
}

}  // namespace
}  // namespace meshwright::search
