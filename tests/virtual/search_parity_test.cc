// Found shardings never change the result: whatever is cheap, the same model is trained as on one
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "ir/verify.h"
#include "planner/lower.h"
#include "planner/pieces.h"
#include "planner/schedule.h"
#include "search/intra_problem.h"
#include "tests/scale.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

constexpr int kSteps = 2;

struct Searched {
  planner::Plan plan;
  planner::Strategies strategies;
};

// The programs of a job under found strategies, as planner::MakePlan makes them under its own.
Result<Searched> PlanBySearch(const ir::JobRequest& job, const planner::Layout& layout,
                              const search::IntraOptions& options,
                              const search::IntraCosts& costs) {
  MW_ASSIGN_OR_RETURN(ir::Graph graph, planner::MakeStepGraph(job));
  const int stage_count = static_cast<int>(layout.pipeline);
  const std::vector<int> layers = planner::BalanceLayers(graph, stage_count);
  MW_ASSIGN_OR_RETURN(planner::StageAssignment stages,
                      planner::AssignStages(graph, layers, stage_count));
  graph = planner::SumGradientsInBackward(std::move(graph), stages);
  MW_ASSIGN_OR_RETURN(graph, planner::SplitScalarSums(graph, stages));
  MW_ASSIGN_OR_RETURN(stages, planner::AssignStages(graph, layers, stage_count));
  const auto solver = search::MakeSolver(SystemClock());
  MW_ASSIGN_OR_RETURN(const search::IntraAnswer answer,
                      search::SearchIntra(graph, stages, options, costs, *solver));
  Searched searched{{}, answer.strategies};
  planner::Plan& plan = searched.plan;
  plan.layout = layout;
  MW_ASSIGN_OR_RETURN(
      planner::Partition step,
      planner::MakePartition(graph, stages, answer.strategies, layout, job.parallel.bucket_bytes));
  planner::ReduceInPlace(step);
  MW_ASSIGN_OR_RETURN(auto schedule, planner::MakeSchedule(layout.schedule, stage_count,
                                                           static_cast<int>(layout.microbatches)));
  MW_ASSIGN_OR_RETURN(plan.step,
                      planner::LowerToPrograms({"step", &step, &layout, std::move(schedule),
                                                static_cast<int>(layout.microbatches)}));
  MW_ASSIGN_OR_RETURN(const planner::Partition init,
                      planner::MakeInitPartition(graph, stages, answer.strategies, layout));
  MW_ASSIGN_OR_RETURN(plan.init,
                      planner::LowerToPrograms(
                          {"init", &init, &layout, planner::ForwardSchedule(stage_count, 1), 1}));
  std::vector<ir::Program> all = plan.init;
  all.insert(all.end(), plan.step.begin(), plan.step.end());
  MW_TRY(ir::VerifyPrograms(all));
  plan.reporting_device = planner::ReportingDevice(layout);
  return searched;
}

struct RunResult {
  std::vector<double> numbers;  // loss and norm of every step
  std::map<std::string, LogicalTensor> tensors;
};

Result<RunResult> RunPlan(planner::Plan plan, const ir::JobRequest& job, int vocabulary) {
  SyntheticTokens tokens(vocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::StartPlan(std::move(plan), job.train.seed, &tokens, ops::Backend::kCpu));
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports, cluster->Train(0, kSteps));
  RunResult result;
  for (const worker::StepReport& report : reports) {
    result.numbers.push_back(report.values.at("loss"));
    result.numbers.push_back(report.values.at("grad_norm"));
  }
  MW_ASSIGN_OR_RETURN(result.tensors, cluster->Gather());
  return result;
}

// What is cheap differs, so that other shardings are found.
struct Prices {
  const char* name;
  search::DeviceRates rates;
  mesh::LinkCost data, tensor;
};

const Prices kPrices[] = {
    {"slow devices", {1e6, 1e12, 0}, {1e-6, 1e-9}, {1e-6, 1e-10}},
    {"slow memory", {1e12, 1e6, 0}, {1e-7, 1e-9}, {1e-7, 1e-9}},
    {"slow data links", {1e8, 1e9, 0}, {1e-6, 1e-6}, {1e-8, 1e-10}},
    {"slow tensor links", {1e8, 1e9, 0}, {1e-8, 1e-10}, {1e-6, 1e-6}},
    {"calls are dear", {1e7, 1e8, 0}, {1e-3, 1e-10}, {1e-3, 1e-10}},
    {"calls are free", {1e7, 1e8, 0}, {0, 1e-8}, {0, 1e-8}},
};

planner::Layout LayoutOf(int data, int tensor, int pipeline, int microbatches) {
  planner::Layout layout;
  layout.data = data;
  layout.tensor = tensor;
  layout.pipeline = pipeline;
  layout.microbatches = microbatches;
  return layout;
}

void Sweep(const TinyOptions& options, const std::vector<planner::Layout>& layouts) {
  const ir::JobRequest job = MakeTinyJob(options);
  const int vocabulary = static_cast<int>(options.vocabulary);
  const auto single = planner::MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(single.has_value()) << single.error();
  const auto expected = RunPlan(*single, job, vocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  std::set<std::map<std::string, mesh::Sharding>> found;
  for (const planner::Layout& layout : layouts) {
    for (const Prices& prices : kPrices) {
      if (kSanitizedBuild && prices.data.seconds_per_byte < 1e-7) continue;
      const std::string name = fmt::format("{} {}", layout.ToString(), prices.name);
      search::IntraOptions search_options;
      search_options.axes = {{planner::kData, layout.data}, {planner::kTensor, layout.tensor}};
      search_options.microbatches = layout.microbatches;
      search_options.budget_bytes = int64_t{1} << 40;
      const auto costs = search::MakeRateCosts(
          prices.rates, {{planner::kData, prices.data}, {planner::kTensor, prices.tensor}});
      const auto searched = PlanBySearch(job, layout, search_options, *costs);
      ASSERT_TRUE(searched.has_value()) << name << ": " << searched.error();
      found.insert(searched->strategies.params);
      const auto actual = RunPlan(searched->plan, job, vocabulary);
      ASSERT_TRUE(actual.has_value()) << name << ": " << actual.error();
      for (size_t i = 0; i < expected->numbers.size(); ++i) {
        EXPECT_NEAR(actual->numbers[i] / expected->numbers[i], 1, 1e-10) << name << " number " << i;
      }
      std::string where;
      EXPECT_LE(LargestDifference(expected->tensors, actual->tensors, &where), 1e-10)
          << name << " " << where;
    }
  }
  // The sweep sees more than one way to store the weights.
  EXPECT_GT(found.size(), kSanitizedBuild ? 0 : layouts.size());
}

TEST(SearchParity, FoundShardingsOfGpt2EqualOneDevice) {
  TinyOptions options;
  options.vocabulary = 64;
  options.layers = 2;
  options.dropout = 0.1;
  Sweep(options, {LayoutOf(2, 1, 1, 1), LayoutOf(1, 2, 1, 1), LayoutOf(2, 2, 1, 4)});
}

TEST(SearchParity, FoundShardingsOfLlamaEqualOneDevice) {
  TinyOptions options;
  options.family = "llama";
  options.vocabulary = 64;
  options.tied = false;
  options.layers = 2;
  Sweep(options, {LayoutOf(2, 2, 1, 1)});
}

TEST(SearchParity, FoundShardingsOfStagesEqualOneDevice) {
  TinyOptions options;
  options.vocabulary = 64;
  options.layers = 4;
  Sweep(options, {LayoutOf(2, 1, 2, 4), LayoutOf(2, 2, 2, 2)});
}

}  // namespace
}  // namespace meshwright::testing
