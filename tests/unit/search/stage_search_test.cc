#include "search/stage_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "search/stage_buckets.h"
#include "tests/fake_clock.h"
#include "tests/still_clock.h"
#include "tests/unit/search/stage_problems.h"

namespace meshwright::search {
namespace {

const StageSearchOptions kExactly{.timeout_ms = 60'000, .gap = 0, .bucket_ratio = 0};

StageAnswer Found(const StageProblem& problem, const StageSearchOptions& options = kExactly) {
  auto answer = SearchStages(problem, options, kStill);
  EXPECT_TRUE(answer.has_value()) << answer.error().ToString();
  return answer.has_value() ? *std::move(answer) : StageAnswer{};
}

Status Refused(const StageProblem& problem) {
  const auto answer = SearchStages(problem, kExactly, kStill);
  return answer.has_value() ? OkStatus() : answer.error();
}

TEST(StageSearch, ManyMicrobatchesPipelineWhatDoesNotScale) {
  StageProblem problem = EvenProblem(8, 64, {ClassOf("gpu", {4})});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  problem.options.push_back(EvenOption(problem, 0, {1, 4}, 2));  // half of the time is lost
  const StageAnswer answer = Found(problem);
  EXPECT_THAT(answer.stages, testing::ElementsAre(StageChoice{0, 2, 0}, StageChoice{2, 4, 0},
                                                  StageChoice{4, 6, 0}, StageChoice{6, 8, 0}));
  EXPECT_DOUBLE_EQ(answer.evaluation.step_s, 8 + 63 * 2);
  EXPECT_EQ(answer.gap(), 0);
  // One microbatch has nothing to overlap with.
  problem.microbatches = 1;
  EXPECT_THAT(Found(problem).stages, testing::ElementsAre(StageChoice{0, 8, 1}));
}

TEST(StageSearch, AClassHalfAsFastGetsHalfAsManyLayers) {
  StageProblem problem = EvenProblem(12, 100, {ClassOf("fast", {1}), ClassOf("slow", {1})});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  problem.options.push_back(EvenOption(problem, 1, {1, 1}, 2));
  const StageAnswer answer = Found(problem);
  ASSERT_EQ(answer.stages.size(), 2u);
  for (const StageChoice& stage : answer.stages) {
    EXPECT_EQ(stage.end_layer - stage.first_layer, stage.option == 0 ? 8 : 4);
  }
}

TEST(StageSearch, DevicesStayIdleWhenTheyCostMoreThanTheyBring) {
  StageProblem problem = EvenProblem(4, 4, {ClassOf("gpu", {8})});
  problem.options.push_back(EvenOption(problem, 0, {1, 2}, 1));
  problem.options.push_back(EvenOption(problem, 0, {1, 8}, 8));
  problem.transfer_s = [](int, int, int64_t) { return 10.0; };
  EXPECT_THAT(Found(problem).stages, testing::ElementsAre(StageChoice{0, 4, 0}));
}

TEST(StageSearch, EqualCostsTakeTheFewestStagesThenTheFewestDevices) {
  StageProblem problem = EvenProblem(4, 1, {ClassOf("gpu", {8})});
  problem.options.push_back(EvenOption(problem, 0, {1, 4}, 4));
  problem.options.push_back(EvenOption(problem, 0, {1, 2}, 2));  // as fast with half of them
  EXPECT_THAT(Found(problem).stages, testing::ElementsAre(StageChoice{0, 4, 1}));
}

TEST(StageSearch, SubmeshesAreRealAndNotOnlyCounted) {
  // Three stages of 5 devices count to less than 16, and do not fit two hosts of 8.
  StageProblem problem = EvenProblem(3, 100, {ClassOf("gpu", {8, 8})});
  problem.options.push_back(EvenOption(problem, 0, {1, 5}, 5));
  problem.options.push_back(EvenOption(problem, 0, {1, 3}, 4.5));
  const StageAnswer answer = Found(problem);
  EXPECT_EQ(answer.stages.size(), 3u);
  EXPECT_DOUBLE_EQ(answer.evaluation.step_s, 1 + 1 + 1.5 + 99 * 1.5);
}

TEST(StageSearch, MemoryOfWhatIsInFlightMovesLayersBack) {
  // An earlier stage holds more microbatches: with room for 5 activations, the stages of 1F1B have
  // at most 1, 2 and 5 layers.
  StageProblem problem = EvenProblem(6, 16, {ClassOf("gpu", {3}, 5)});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  for (LayerCost& cost : problem.options[0].layers) cost.activation_bytes = 1;
  problem.pins.stages = 3;
  EXPECT_THAT(
      Found(problem).stages,
      testing::ElementsAre(StageChoice{0, 1, 0}, StageChoice{1, 3, 0}, StageChoice{3, 6, 0}));
  problem.classes[0].memory_bytes = 3;
  const Status status = Refused(problem);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("the nearest lack 1 bytes: stage 1 of 3 (layers 1..2, gpu 1x1, "
                                 "\"even\") needs 4 bytes with 2 microbatches in flight"));
}

TEST(StageSearch, WithoutOptionsThatFitTheHostsMemoryIsNotBlamed) {
  StageProblem problem = EvenProblem(2, 4, {ClassOf("gpu", {4, 4})});
  problem.options.push_back(EvenOption(problem, 0, {1, 5}, 1));
  const Status status = Refused(problem);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::HasSubstr("8 devices of class \"gpu\" on 2 hosts"));
}

TEST(StageSearch, RefusesCostsThatAreNone) {
  StageProblem problem = EvenProblem(2, 4, {ClassOf("gpu", {4})});
  problem.options.push_back(EvenOption(problem, 0, {1, 1}, 1));
  problem.transfer_s = [](int, int, int64_t) { return -1.0; };
  EXPECT_THAT(Refused(problem).ToString(), testing::HasSubstr("1000 bytes take -1 s from port 0"));
  problem.transfer_s = nullptr;
  problem.range_cost = [](int, int, int) { return LayerCost{-1}; };
  EXPECT_THAT(Refused(problem).ToString(),
              testing::HasSubstr("layers 0..0 under option \"even\" takes -1 s"));
}

// A cluster of equal hosts of 8, with a loss of efficiency per doubling of a submesh.
StageProblem Cluster(int layers, int hosts) {
  StageProblem problem =
      EvenProblem(layers, 32, {ClassOf("gpu", std::vector<int>(static_cast<size_t>(hosts), 8))});
  double loss = 1;
  for (int devices = 1; devices <= 8 * hosts; devices *= 2, loss *= 1.1) {
    const SubmeshShape shape =
        devices <= 8 ? SubmeshShape{1, devices} : SubmeshShape{devices / 8, 8};
    problem.options.push_back(EvenOption(problem, 0, shape, loss));
  }
  return problem;
}

TEST(StageSearch, TimeEndsTheSearch) {
  const StageProblem problem = Cluster(16, 4);
  const auto answer = SearchStages(problem, {.timeout_ms = 0}, FakeClock());
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), StatusCode::kDeadlineExceeded);
}

TEST(StageSearch, ProgressIsMonotoneAndMayEndTheSearch) {
  const StageProblem problem = Cluster(16, 4);
  StageSearchOptions options = kExactly;
  std::vector<double> steps_s;
  options.progress = [&](const StageAnswer& answer) {
    EXPECT_LE(answer.bound_s, answer.evaluation.step_s);
    steps_s.push_back(answer.evaluation.step_s);
    return true;
  };
  const StageAnswer best = Found(problem, options);
  EXPECT_TRUE(std::is_sorted(steps_s.rbegin(), steps_s.rend()));
  ASSERT_GE(steps_s.size(), 2u);
  EXPECT_EQ(steps_s.back(), best.evaluation.step_s);
  options.progress = [](const StageAnswer&) { return false; };
  const StageAnswer first = Found(problem, options);
  EXPECT_EQ(first.evaluation.step_s, steps_s.front());
  EXPECT_LE(first.bound_s, best.evaluation.step_s);
}

TEST(StageSearch, EqualProblemsGiveEqualAnswers) {
  const StageProblem problem = Cluster(24, 16);
  EXPECT_EQ(Found(problem).stages, Found(problem).stages);
}

TEST(StageSearch, LargeInventoriesAreSearchedInUnits) {
  const StageProblem problem = Cluster(16, 64);
  const StageAnswer fine = Found(problem);
  EXPECT_EQ(fine.units[0].unit_devices, 1);
  StageSearchOptions options = kExactly;
  options.limits.entries = 500;
  const StageAnswer coarse = Found(problem, options);
  EXPECT_GE(coarse.units[0].unit_devices, 8);
  EXPECT_EQ(coarse.units[0].unit_devices % 8, 0);
  // Sixteen equal layers fit sixteen stages of four hosts: nothing is lost.
  EXPECT_NEAR(coarse.evaluation.step_s, fine.evaluation.step_s, 1e-6 * fine.evaluation.step_s);
}

TEST(CostBuckets, HoldCloseValuesTogether) {
  const CostBuckets buckets({3, 1, 1.05, 1.2, 0}, 0.1);
  ASSERT_EQ(buckets.count(), 4);
  EXPECT_EQ(buckets.low(1), 1);
  EXPECT_EQ(buckets.high(1), 1.05);
  EXPECT_EQ(buckets.at(1.02), 1);
  EXPECT_EQ(buckets.at(9), 3);
  EXPECT_EQ(CostBuckets({2, 2, 1}, 0).count(), 2);
}

}  // namespace
}  // namespace meshwright::search
