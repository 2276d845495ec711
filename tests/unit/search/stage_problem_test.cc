#include "search/stage_search.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/search/stage_problems.h"

namespace meshwright::search {
namespace {

// Two layers of 3 s on one device, on a host of two.
StageProblem TwoLayers() {
  StageProblem problem = EvenProblem(2, 4, {ClassOf({2}, 100)});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 3));
  for (LayerCost& cost : problem.options[0].layers) {
    cost.tail_s = 0.75;
    cost.state_bytes = 20;
    cost.activation_bytes = 10;
    cost.transient_bytes = 5;
  }
  problem.transfer_s = [](int, int, int64_t bytes) { return static_cast<double>(bytes) / 1000; };
  return problem;
}

const std::vector<StageChoice> kTwoStages = {{0, 1, 0}, {1, 2, 0}};

TEST(EvaluateStages, FollowsTheFormulaOfTheHeader) {
  const StageEvaluation evaluation = EvaluateStages(TwoLayers(), kTwoStages);
  EXPECT_EQ(evaluation.wrong, "");
  EXPECT_DOUBLE_EQ(evaluation.step_s, 4 + 3 + 3 * 4 + 0.75);
}

TEST(EvaluateStages, SaysWhatIsWrong) {
  StageProblem problem = TwoLayers();
  problem.classes[0].memory_bytes = 20 + 2 * 10 + 5;
  EXPECT_EQ(EvaluateStages(problem, kTwoStages).wrong, "");
  --problem.classes[0].memory_bytes;
  EXPECT_EQ(EvaluateStages(problem, kTwoStages).wrong,
            "stage 0 does not fit its devices with 2 microbatches in flight");
  problem = TwoLayers();
  problem.stages = 1;
  EXPECT_EQ(EvaluateStages(problem, kTwoStages).wrong, "2 stages instead of 1");
  const std::vector<StageChoice> gap = {{1, 2, 0}};
  EXPECT_EQ(EvaluateStages(problem, gap).wrong, "the 1 stages do not have 2 layers in order");
}

TEST(StageProblem, KnowsWhatIsInFlight) {
  StageProblem problem = EvenProblem(8, 8, {});
  EXPECT_EQ(problem.InFlight(3), 3);
  problem.holds_all = true;
  EXPECT_EQ(problem.InFlight(3), 8);
  problem = EvenProblem(8, 2, {});
  EXPECT_EQ(problem.InFlight(3), 2);
}

}  // namespace
}  // namespace meshwright::search
