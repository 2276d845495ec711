// What the search of shardings is told a node, a link and a whole step cost, against the cost model
// and the forecast of the programs that are made of its answer.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "client/trainer.h"
#include "models/gpt2.h"
#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "planner/zero.h"
#include "search/find_shardings.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

using mesh::Sharding;
using planner::kData;
using planner::kTensor;

planner::Layout DegreesOf(int64_t data, int64_t tensor, int64_t pipeline, int64_t microbatches,
                          const std::string& schedule = "1f1b") {
  planner::Layout layout;
  layout.degrees[planner::Axis::kData] = data;
  layout.degrees[planner::Axis::kTensor] = tensor;
  layout.pipeline = pipeline;
  layout.microbatches = microbatches;
  layout.schedule = schedule;
  layout.chunks = planner::ShapeOfSchedule(schedule, static_cast<int>(pipeline), 0).value().chunks;
  return layout;
}

// Two hosts of four devices; nothing but bytes costs on the links.
mesh::Topology TwoHosts() {
  mesh::Topology topology;
  for (int i = 0; i < 8; ++i) {
    mesh::Device device;
    device.worker = device.host = fmt::format("h{}", i / 4);
    device.local_index = i % 4;
    topology.devices.push_back(std::move(device));
  }
  topology.links.host = {0, 1e-10};
  topology.links.network = {0, 1e-9};
  return topology;
}

ir::JobRequest UnfusedGpt2(int64_t batch) {
  models::Gpt2Config config;
  config.vocabulary = 256;
  config.positions = 64;
  config.width = 128;
  config.layers = 3;
  config.heads = 8;
  ir::TrainSpec train;
  train.global_batch = batch;
  train.sequence = 64;
  train.compile = false;
  auto job = client::JobBuilder("gpt2").Parallel({}).Train(train).Build(models::MakeGpt2(config));
  EXPECT_TRUE(job.has_value());
  return *job;
}

TEST(ModelCosts, ANodeTakesWhatItsLocalNodeTakes) {
  const auto product = [](int64_t m, int64_t k, int64_t n) {
    ir::Builder builder("product");
    const ValueId a =
        builder.AddOne(ir::Op::kInput, {}, {{"name", "a"}}, {{ir::DType::kF32, {m, k}}});
    const ValueId b =
        builder.AddOne(ir::Op::kInput, {}, {{"name", "b"}}, {{ir::DType::kF32, {k, n}}});
    builder.SetOutput("c", builder.AddOne(ir::Op::kEinsum, {a, b}, {{"equation", "mk,kn->mn"}}));
    return builder.Finish().value();
  };
  const mesh::Topology topology = TwoHosts();
  const planner::Layout layout = DegreesOf(2, 4, 1, 1);
  const auto costs = MakeModelCosts(topology, layout);
  const ir::Graph whole = product(512, 256, 128);
  const ir::Graph local = product(256, 64, 128);
  const planner::NodeStrategy strategy{
      .operands = {{{{kData}, {kTensor}}, {}}, {{{kTensor}, {}}, {}}},
      .results = {{{{kData}, {}}, {{kTensor, ir::PartialKind::kSum}}}}};
  EXPECT_DOUBLE_EQ(
      costs->NodeSeconds(whole, whole.nodes[2], strategy, planner::PlanningMesh(layout)),
      planner::CostModel(topology).NodeSeconds(local, local.nodes[2], 0));
}

TEST(ModelCosts, AxesHaveTheLinksOfTheirGroups) {
  // Tensor groups are within hosts, data groups between them.
  const auto costs = MakeModelCosts(TwoHosts(), DegreesOf(2, 4, 1, 1));
  EXPECT_NEAR(costs->Link(kTensor).seconds_per_byte, 1e-10, 1e-14);
  EXPECT_GE(costs->Link(kData).seconds_per_byte, 1e-9 * (1 - 1e-6));
  EXPECT_EQ(costs->Link(kTensor).alpha_s, 0);
  // A stage per host: the data groups are within them.
  const auto staged = MakeModelCosts(TwoHosts(), DegreesOf(4, 1, 2, 2));
  EXPECT_NEAR(staged->Link(kData).seconds_per_byte, 1e-10, 1e-14);
}

TEST(ShardingSearch, KeepsAsManyMicrobatchesAsTheScheduleHasInFlight) {
  EXPECT_EQ(KeptMicrobatches(DegreesOf(2, 2, 1, 4)), 1);
  EXPECT_EQ(KeptMicrobatches(DegreesOf(1, 1, 4, 8)), 4);
  EXPECT_EQ(KeptMicrobatches(DegreesOf(1, 1, 4, 8, "gpipe")), 8);
  EXPECT_EQ(KeptMicrobatches(DegreesOf(1, 1, 4, 2)), 2);
}

// The step that is priced is the step that runs: with links that cost per byte alone, and without
// fusion, the forecast of the programs is the objective.
TEST(ShardingSearch, PricesTheProgramsThatItsAnswerBecomes) {
  const mesh::Topology topology = TwoHosts();
  struct Case {
    planner::Layout layout;
    int64_t zero;
  };
  const Case cases[] = {{DegreesOf(8, 1, 1, 1), 0}, {DegreesOf(2, 4, 1, 1), 0},
                        {DegreesOf(1, 8, 1, 2), 0}, {DegreesOf(4, 2, 1, 2), 0},
                        {DegreesOf(8, 1, 1, 2), 3}, {DegreesOf(2, 4, 1, 4), 3}};
  for (const Case& c : cases) {
    const ir::JobRequest job = UnfusedGpt2(32);
    const auto costs = MakeModelCosts(topology, c.layout);
    double priced_s = 0;
    const auto choose =
        [&](const ir::Graph& graph, const planner::StageAssignment& stages,
            const planner::Layout& layout,
            const std::map<std::string, Sharding>& known) -> Result<planner::Strategies> {
      IntraOptions options;
      options.axes = {{kTensor, layout.tensor()}, {kData, layout.data()}};
      options.microbatches = layout.microbatches;
      options.budget_bytes = int64_t{1} << 50;
      options.pins = {.params = known, .batch_axes = {kData}};
      if (known.empty() && c.zero > 0) {
        planner::Layout asked = layout;
        asked.zero = c.zero;
        auto rules = planner::ChooseStrategies(graph, stages, asked, {}, layout.tensor());
        planner::ApplyZero(graph, asked, *rules);
        options.pins.params = rules->params;
      }
      MW_ASSIGN_OR_RETURN(IntraAnswer answer, SearchIntra(graph, stages, options, *costs, kStill));
      if (known.empty()) priced_s = answer.step_s;
      return std::move(answer.strategies);
    };
    const auto plan =
        planner::MakePlanOf(job, topology, c.layout, planner::PlanScope::kOnePerStage, choose);
    ASSERT_TRUE(plan.has_value()) << c.layout.ToString() << ": " << plan.error();
    const auto forecast = planner::ForecastStep(*plan, topology);
    ASSERT_TRUE(forecast.has_value()) << forecast.error();
    EXPECT_NEAR(priced_s / forecast->step_s, 1, 0.05) << c.layout.ToString() << " zero " << c.zero;
  }
}

// What the job pins of ZeRO is stored as planner/zero.h stores it; the rest is free.
TEST(ShardingSearch, TheJobsZeroIsTheLeastThatIsSplit) {
  ir::JobRequest job = UnfusedGpt2(32);
  const mesh::Topology topology = TwoHosts();
  planner::Layout layout = DegreesOf(2, 4, 1, 1);
  for (const int64_t zero : {0, 1, 3}) {
    job.parallel.zero = zero;
    layout.zero = zero;
    const auto choose = MakeShardingChooser(job, topology, {}, kStill);
    const auto plan =
        planner::MakePlanOf(job, topology, layout, planner::PlanScope::kOnePerStage, choose);
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const auto rules = planner::MakePlanOf(job, topology, layout, planner::PlanScope::kOnePerStage);
    ASSERT_TRUE(rules.has_value()) << rules.error();
    for (size_t i = 0; i < plan->params.size(); ++i) {
      if (zero < 3 || !rules->params[i].sharding.UsesAxis(kData)) continue;
      EXPECT_EQ(plan->params[i].sharding, rules->params[i].sharding) << plan->params[i].name;
    }
    const auto state = [](const planner::Plan& p) {
      return p.memory[0].bytes.at(ir::MemoryKind::kOptimizer);
    };
    EXPECT_LE(state(*plan), state(*rules)) << zero;
  }
}

// A budget that whole weights and state do not fit in is kept by splitting them.
TEST(ShardingSearch, FitsTheDevices) {
  const ir::JobRequest job = UnfusedGpt2(32);
  mesh::Topology topology = TwoHosts();
  const planner::Layout layout = DegreesOf(8, 1, 1, 1);
  const auto roomy = planner::MakePlanOf(job, topology, layout);
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  for (mesh::Device& device : topology.devices) {
    device.memory_bytes = roomy->memory[0].total_bytes * 7 / 10;
  }
  ASSERT_FALSE(planner::MakePlanOf(job, topology, layout).has_value());
  const auto choose = MakeShardingChooser(job, topology, {.memory_share = 0.9}, kStill);
  const auto plan =
      planner::MakePlanOf(job, topology, layout, planner::PlanScope::kAllDevices, choose);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  EXPECT_LE(plan->memory[0].total_bytes, topology.devices[0].memory_bytes);
}

}  // namespace
}  // namespace meshwright::search
