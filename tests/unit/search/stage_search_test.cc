#include "search/stage_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/fake_clock.h"
#include "tests/still_clock.h"
#include "tests/unit/search/stage_problems.h"

namespace meshwright::search {
namespace {

StageAnswer Found(const StageProblem& problem) {
  auto answer = SearchStages(problem, {}, kStill);
  EXPECT_TRUE(answer.has_value());
  if (!answer) return {};
  EXPECT_EQ(EvaluateStages(problem, answer->stages).wrong, "");
  return *std::move(answer);
}

TEST(StageSearch, ManyMicrobatchesPipelineWhatDoesNotScale) {
  StageProblem problem = EvenProblem(8, 64, {ClassOf({4})});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  problem.options.push_back(EvenOption(problem, 0, {1, 4}, 2));  // half of the time is lost
  const StageAnswer answer = Found(problem);
  EXPECT_THAT(answer.stages, testing::ElementsAre(StageChoice{0, 2, 0}, StageChoice{2, 4, 0},
                                                  StageChoice{4, 6, 0}, StageChoice{6, 8, 0}));
  EXPECT_DOUBLE_EQ(EvaluateStages(problem, answer.stages).step_s, 8 + 63 * 2);
  // One microbatch has nothing to overlap with.
  problem.microbatches = 1;
  EXPECT_THAT(Found(problem).stages, testing::ElementsAre(StageChoice{0, 8, 1}));
}

TEST(StageSearch, AClassHalfAsFastGetsHalfAsManyLayers) {
  StageProblem problem = EvenProblem(12, 100, {ClassOf({1}), ClassOf({1})});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  problem.options.push_back(EvenOption(problem, 1, {1, 1}, 2));
  const StageAnswer answer = Found(problem);
  ASSERT_EQ(answer.stages.size(), 2u);
  for (const StageChoice& stage : answer.stages) {
    EXPECT_EQ(stage.end_layer - stage.first_layer, stage.option == 0 ? 8 : 4);
  }
}

TEST(StageSearch, DevicesStayIdleWhenTheyCostMoreThanTheyBring) {
  StageProblem problem = EvenProblem(4, 4, {ClassOf({8})});
  problem.options.push_back(EvenOption(problem, 0, {1, 2}, 1));
  problem.options.push_back(EvenOption(problem, 0, {1, 8}, 8));
  problem.transfer_s = [](int, int, int64_t) { return 10.0; };
  EXPECT_THAT(Found(problem).stages, testing::ElementsAre(StageChoice{0, 4, 0}));
}

TEST(StageSearch, EqualCostsTakeTheFewestStagesThenTheFewestDevices) {
  StageProblem problem = EvenProblem(4, 1, {ClassOf({8})});
  problem.options.push_back(EvenOption(problem, 0, {1, 4}, 4));
  problem.options.push_back(EvenOption(problem, 0, {1, 2}, 2));  // as fast with half of them
  EXPECT_THAT(Found(problem).stages, testing::ElementsAre(StageChoice{0, 4, 1}));
}

TEST(StageSearch, SubmeshesAreRealAndNotOnlyCounted) {
  // Three stages of 5 devices count to less than 16, and do not fit two hosts of 8.
  StageProblem problem = EvenProblem(3, 100, {ClassOf({8, 8})});
  problem.options.push_back(EvenOption(problem, 0, {1, 5}, 5));
  problem.options.push_back(EvenOption(problem, 0, {1, 3}, 4.5));
  const StageAnswer answer = Found(problem);
  EXPECT_EQ(answer.stages.size(), 3u);
  EXPECT_DOUBLE_EQ(EvaluateStages(problem, answer.stages).step_s, 1 + 1 + 1.5 + 99 * 1.5);
}

TEST(StageSearch, MemoryOfWhatIsInFlightMovesLayersBack) {
  // An earlier stage holds more microbatches: with room for 5 activations, the stages of 1F1B have
  // at most 1, 2 and 5 layers.
  StageProblem problem = EvenProblem(6, 16, {ClassOf({3}, 5)});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  for (LayerCost& cost : problem.options[0].layers) cost.activation_bytes = 1;
  problem.stages = 3;
  EXPECT_THAT(
      Found(problem).stages,
      testing::ElementsAre(StageChoice{0, 1, 0}, StageChoice{1, 3, 0}, StageChoice{3, 6, 0}));
  problem.classes[0].memory_bytes = 3;
  EXPECT_FALSE(SearchStages(problem, {}, kStill).has_value());
}

// A cluster of equal hosts of 8, with a loss of efficiency per doubling of a submesh.
StageProblem Cluster(int layers, int hosts) {
  StageProblem problem =
      EvenProblem(layers, 32, {ClassOf(std::vector<int>(static_cast<size_t>(hosts), 8))});
  double loss = 1;
  for (int devices = 1; devices <= 8 * hosts; devices *= 2, loss *= 1.1) {
    const SubmeshShape shape =
        devices <= 8 ? SubmeshShape{1, devices} : SubmeshShape{devices / 8, 8};
    problem.options.push_back(EvenOption(problem, 0, shape, loss));
  }
  return problem;
}

TEST(StageSearch, TimeEndsTheSearch) {
  EXPECT_FALSE(SearchStages(Cluster(16, 4), {.timeout_ms = 0}, FakeClock()).has_value());
}

TEST(StageSearch, StagesLieOnDevicesOfTheirOwn) {
  StageProblem problem = EvenProblem(6, 100, {ClassOf({4, 4, 4})});
  problem.options.push_back(EvenOption(problem, 0, {2, 4}, 1));
  problem.options.push_back(EvenOption(problem, 0, {1, 2}, 1));
  problem.stages = 3;
  const StageAnswer answer = Found(problem);
  ASSERT_EQ(answer.places.size(), 3u);
  std::vector<std::vector<int>> taken(3, std::vector<int>(4));
  for (size_t i = 0; i < answer.places.size(); ++i) {
    const SubmeshShape& shape = problem.options[static_cast<size_t>(answer.stages[i].option)].shape;
    ASSERT_EQ(static_cast<int>(answer.places[i].hosts.size()), shape.hosts);
    for (const int host : answer.places[i].hosts) {
      for (int d = 0; d < shape.devices_per_host; ++d) {
        const int device = answer.places[i].first_device + d;
        EXPECT_EQ(++taken[static_cast<size_t>(host)].at(static_cast<size_t>(device)), 1);
      }
    }
  }
  EXPECT_EQ(taken, (std::vector<std::vector<int>>(3, std::vector<int>(4, 1))));
}

TEST(StageSearch, EqualProblemsGiveEqualAnswers) {
  const StageProblem problem = Cluster(24, 16);
  EXPECT_EQ(Found(problem).stages, Found(problem).stages);
}

TEST(StageSearch, SixteenEqualLayersAreSixteenEqualStagesOfALargeCluster) {
  const StageProblem problem = Cluster(16, 64);
  const StageAnswer answer = Found(problem);
  EXPECT_LE(EvaluateStages(problem, answer.stages).step_s,
            (16 + 31) / 32.0 * 1.1 * 1.1 * 1.1 * 1.1 * 1.1 * (1 + 1e-6));
}

}  // namespace
}  // namespace meshwright::search
