// Found shardings never change the result: whatever is cheap, the same model is trained as on one
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "compile/compile.h"
#include "ir/verify.h"
#include "planner/evaluation.h"
#include "planner/lower.h"
#include "planner/partition.h"
#include "planner/reduce_in_place.h"
#include "planner/schedule.h"
#include "search/intra_problem.h"
#include "tests/rate_costs.h"
#include "tests/scale.h"
#include "tests/still_clock.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

constexpr int kSteps = 2;

struct Searched {
  planner::Plan plan;
  planner::Strategies strategies;
  int64_t used_bytes = 0;
};

struct Staged {
  ir::Graph graph;
  planner::StageAssignment stages;
};

Result<Staged> Stage(ir::Graph graph, const std::vector<int>& stage_of_layer, int stage_count) {
  MW_ASSIGN_OR_RETURN(planner::StageAssignment stages,
                      planner::AssignStages(graph, stage_of_layer, {stage_count, 1, false}));
  graph = planner::SumGradientsInBackward(std::move(graph), stages);
  MW_ASSIGN_OR_RETURN(graph, planner::SplitScalarSums(graph, stages));
  MW_ASSIGN_OR_RETURN(stages,
                      planner::AssignStages(graph, stage_of_layer, {stage_count, 1, false}));
  return Staged{std::move(graph), std::move(stages)};
}

Result<std::vector<ir::Program>> Lower(const char* name, planner::Partition partition,
                                       const planner::Layout& layout,
                                       std::vector<planner::StageSchedule> schedule,
                                       int64_t microbatches) {
  for (planner::Piece& piece : partition.pieces) {
    MW_ASSIGN_OR_RETURN(ir::Graph compiled, compile::CompileExecutable(*piece.graph));
    piece.graph = std::make_shared<const ir::Graph>(std::move(compiled));
  }
  return planner::LowerToPrograms(
      {name, &partition, &layout, std::move(schedule), static_cast<int>(microbatches)});
}

// The programs of a job under found strategies, as planner::MakePlan makes them under its own.
class SearchPlanner {
 public:
  SearchPlanner(const ir::JobRequest& job, const planner::Layout& layout,
                search::IntraOptions options, const search::IntraCosts& costs)
      : job_(job), layout_(layout), options_(std::move(options)), costs_(costs) {}

  Result<Searched> Run() {
    planner::Plan& plan = searched_.plan;
    plan.layout = layout_;
    plan.reporting_device = planner::ReportingDevice(layout_);
    MW_TRY(PlanStep());
    MW_TRY(PlanEvaluation());
    std::vector<ir::Program> all = plan.Of("init");
    all.insert(all.end(), plan.Of("step").begin(), plan.Of("step").end());
    all.insert(all.end(), plan.Of("eval").begin(), plan.Of("eval").end());
    MW_TRY(ir::VerifyPrograms(all));
    return std::move(searched_);
  }

 private:
  int stage_count() const { return static_cast<int>(layout_.pipeline); }

  Status PlanStep() {
    MW_ASSIGN_OR_RETURN(ir::Graph graph, planner::MakeStepGraph(job_));
    layers_ = planner::BalanceLayers(graph, planner::LayerCount(graph), stage_count());
    MW_ASSIGN_OR_RETURN(const Staged staged, Stage(std::move(graph), layers_, stage_count()));
    MW_ASSIGN_OR_RETURN(const search::IntraAnswer answer,
                        search::SearchIntra(staged.graph, staged.stages, options_, costs_, kStill));
    searched_.strategies = answer.strategies;
    searched_.used_bytes = options_.budget_bytes - answer.left_bytes;
    MW_ASSIGN_OR_RETURN(planner::Partition step,
                        planner::MakePartition(staged.graph, staged.stages, answer.strategies,
                                               layout_, job_.parallel.bucket_bytes));
    planner::ReduceInPlace(step);
    MW_ASSIGN_OR_RETURN(auto schedule,
                        planner::MakeSchedule(layout_.schedule, layout_.shape(),
                                              static_cast<int>(layout_.microbatches)));
    MW_ASSIGN_OR_RETURN(
        searched_.plan.programs["step"],
        Lower("step", std::move(step), layout_, std::move(schedule), layout_.microbatches));
    MW_ASSIGN_OR_RETURN(
        planner::Partition init,
        planner::MakeInitPartition(staged.graph, staged.stages, answer.strategies, layout_));
    MW_ASSIGN_OR_RETURN(
        searched_.plan.programs["init"],
        Lower("init", std::move(init), layout_, planner::ForwardSchedule(layout_.shape(), 1), 1));
    return OkStatus();
  }

  // Forward only; weights are where the step has them.
  Status PlanEvaluation() {
    MW_ASSIGN_OR_RETURN(ir::Graph graph, planner::MakeEvaluationGraph(
                                             planner::FillLayers(job_.main().graph), job_.main()));
    MW_ASSIGN_OR_RETURN(const planner::StageAssignment stages,
                        planner::AssignStages(graph, layers_, layout_.shape()));
    search::IntraOptions options = options_;
    for (NodeId id : graph.NodesOf(ir::Op::kParam)) {
      const std::string name = graph.node(id).attrs.Str("name");
      options.pins.params[name] = searched_.strategies.params.at(name);
    }
    MW_ASSIGN_OR_RETURN(const search::IntraAnswer answer,
                        search::SearchIntra(graph, stages, options, costs_, kStill));
    MW_ASSIGN_OR_RETURN(planner::Partition partition,
                        planner::MakePartition(graph, stages, answer.strategies, layout_,
                                               job_.parallel.bucket_bytes));
    const int microbatches = static_cast<int>(layout_.microbatches);
    MW_ASSIGN_OR_RETURN(
        searched_.plan.programs["eval"],
        Lower("eval", std::move(partition), layout_,
              planner::ForwardSchedule(layout_.shape(), microbatches), microbatches));
    return OkStatus();
  }

  const ir::JobRequest& job_;
  const planner::Layout& layout_;
  const search::IntraOptions options_;
  const search::IntraCosts& costs_;
  std::vector<int> layers_;
  Searched searched_;
};

struct RunResult {
  std::vector<double> numbers;  // loss and norm of every step, validation
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
  MW_ASSIGN_OR_RETURN(const double validation, cluster->Validate(2));
  result.numbers.push_back(validation);
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
  layout.degrees = {data, tensor};
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
      search_options.axes = {{planner::kData, layout.data()}, {planner::kTensor, layout.tensor()}};
      search_options.microbatches = layout.microbatches;
      search_options.budget_bytes = int64_t{1} << 40;
      const auto costs = search::MakeRateCosts(
          prices.rates, {{planner::kData, prices.data}, {planner::kTensor, prices.tensor}});
      const auto searched = SearchPlanner(job, layout, search_options, *costs).Run();
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

// Weights and state that were whole are split when they must be, and gathered where they are used.
TEST(SearchParity, FoundShardingsOfATightBudgetEqualOneDevice) {
  TinyOptions options;
  options.vocabulary = 64;
  options.layers = 3;
  options.batch = 8;
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunPlan(*planner::MakePlan(job, mesh::Topology::Local(1)), job, 64);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  const planner::Layout layout = LayoutOf(4, 1, 1, 1);
  search::IntraOptions search_options{.axes = {{planner::kData, 4}},
                                      .budget_bytes = int64_t{1} << 40};
  search_options.pins.batch_axes = {planner::kData};
  // Calls are dear: nothing is split without need.
  const auto costs = search::MakeRateCosts({1e12, 1e12, 0}, {{planner::kData, {1e-3, 1e-9}}});
  const auto roomy = SearchPlanner(job, layout, search_options, *costs).Run();
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  search_options.budget_bytes = roomy->used_bytes * 6 / 10;
  const auto tight = SearchPlanner(job, layout, search_options, *costs).Run();
  ASSERT_TRUE(tight.has_value()) << tight.error();
  EXPECT_NE(tight->strategies.params, roomy->strategies.params);
  EXPECT_LE(tight->used_bytes, search_options.budget_bytes);
  const auto actual = RunPlan(tight->plan, job, 64);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  for (size_t i = 0; i < expected->numbers.size(); ++i) {
    EXPECT_NEAR(actual->numbers[i] / expected->numbers[i], 1, 1e-10) << "number " << i;
  }
  std::string where;
  EXPECT_LE(LargestDifference(expected->tensors, actual->tensors, &where), 1e-10) << where;
}

// Rounding depends on the layout: that the programs are well-formed is what can be said exactly.
TEST(SearchParity, FoundShardingsOfMixedPrecisionAreVerified) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.vocabulary = 64;
  options.layers = 3;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = ir::DType::kBF16;
  for (const Prices& prices : kPrices) {
    const planner::Layout layout = LayoutOf(2, 2, 1, 2);
    search::IntraOptions search_options;
    search_options.axes = {{planner::kData, 2}, {planner::kTensor, 2}};
    search_options.microbatches = 2;
    search_options.budget_bytes = int64_t{1} << 40;
    const auto costs = search::MakeRateCosts(
        prices.rates, {{planner::kData, prices.data}, {planner::kTensor, prices.tensor}});
    const auto searched = SearchPlanner(job, layout, search_options, *costs).Run();
    ASSERT_TRUE(searched.has_value()) << prices.name << ": " << searched.error();
  }
}

TEST(SearchParity, FoundShardingsOfStagesEqualOneDevice) {
  TinyOptions options;
  options.vocabulary = 64;
  options.layers = 4;
  Sweep(options, {LayoutOf(2, 1, 2, 4), LayoutOf(2, 2, 2, 2)});
}

}  // namespace
}  // namespace meshwright::testing
