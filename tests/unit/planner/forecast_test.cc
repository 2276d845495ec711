#include "planner/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/schema.h"
#include "mesh/cluster.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;
using ::testing::HasSubstr;

constexpr int kLayers = 4;
constexpr int64_t kBatch = 8, kSequence = 32, kHidden = 64, kVocabulary = 96;

// A stack of layers of two products each.
ir::JobRequest Job(int64_t data, int64_t tensor, int64_t pipeline, int64_t microbatches) {
  Builder b("loss");
  const auto param = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
  };
  const auto times = [&](ValueId x, ValueId w) {
    return b.AddOne(Op::kEinsum, {x, w}, {{"equation", "bsk,kn->bsn"}});
  };
  const ValueId tokens =
      b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {kBatch, kSequence + 1}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", kSequence}});
  };
  b.SetLayer(0);
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte", {kVocabulary, kHidden}), cut(0)});
  for (int layer = 0; layer < kLayers; ++layer) {
    b.SetLayer(layer);
    const std::string name = "l" + std::to_string(layer);
    x = times(b.AddOne(Op::kGelu, {times(x, param(name + ".up", {kHidden, 4 * kHidden}))}),
              param(name + ".down", {4 * kHidden, kHidden}));
  }
  const auto loss =
      b.Add(Op::kCrossEntropy, {times(x, param("head", {kHidden, kVocabulary})), cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job;
  job.name = "job";
  job.SetLoss(*b.Finish());
  job.train.global_batch = kBatch;
  job.train.sequence = kSequence;
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  job.parallel.microbatches = microbatches;
  return job;
}

struct Case {
  Plan plan;
  Forecast forecast;
};

Case MustForecast(const ir::JobRequest& job, const mesh::Topology& topology) {
  Case made;
  auto plan = MakePlan(job, topology);
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  made.plan = std::move(*plan);
  auto forecast = ForecastStep(made.plan, topology);
  EXPECT_TRUE(forecast.has_value()) << forecast.error().message();
  made.forecast = std::move(*forecast);
  return made;
}

// Rows times weights: forward, and both gradients; the first layer has the embedding below.
constexpr double kProductFlops =
    6. * kBatch * kSequence * (kLayers * 8. * kHidden * kHidden + kHidden * kVocabulary);

TEST(ModelFlops, AreSixPerTokenAndWeight) {
  const auto step = MakeStepGraph(Job(1, 1, 1, 1));
  ASSERT_TRUE(step.has_value());
  EXPECT_DOUBLE_EQ(ModelFlops(*step), kProductFlops);
}

TEST(ForecastStep, OneDeviceTakesTheSumOfItsNodes) {
  const mesh::Topology topology = mesh::Topology::Local(1);
  const Case one = MustForecast(Job(1, 1, 1, 1), topology);
  const CostModel model(topology);
  double expected_s = 0;
  for (const ir::Instruction& run : one.plan.Of("step")[0].instructions) {
    if (run.op != ir::Opcode::kRun) continue;
    const ir::Graph& graph = *one.plan.Of("step")[0].executables[run.executable.index()].graph;
    for (const ir::Node& node : graph.nodes) expected_s += model.NodeSeconds(graph, node, 0);
  }
  EXPECT_NEAR(one.forecast.step_s, expected_s, 1e-12);
  EXPECT_EQ(one.forecast.idle_of_total, 0);
  EXPECT_EQ(one.forecast.collective_s, 0);
  EXPECT_DOUBLE_EQ(one.forecast.tokens_per_s, kBatch * kSequence / one.forecast.step_s);
  const double peak = mesh::DefaultDeviceProfile()->PeakOf(DType::kF32);
  EXPECT_DOUBLE_EQ(one.forecast.model_flops_utilization,
                   kProductFlops / (one.forecast.step_s * peak));
  EXPECT_GT(one.forecast.model_flops_utilization, 0.05);
  EXPECT_LT(one.forecast.model_flops_utilization, 1);
  EXPECT_GE(one.forecast.hardware_flops, kProductFlops);
}

TEST(ForecastStep, CountsWhatEveryAxisMoves) {
  const Case grid = MustForecast(Job(2, 2, 1, 2), mesh::Topology::Local(4));
  double expected = 0;  // all-reduces of every RUN over "data", received
  for (const ir::Program& program : grid.plan.Of("step")) {
    for (const ir::Instruction& run : program.instructions) {
      if (run.op != ir::Opcode::kRun) continue;
      const ir::Graph& graph = *program.executables[run.executable.index()].graph;
      for (const ir::Node& node : graph.nodes) {
        if (node.op != Op::kAllReduce ||
            node.attrs.Strs("axes") != std::vector<std::string>{"data"}) {
          continue;
        }
        for (ValueId id : node.inputs) expected += static_cast<double>(graph.type(id).bytes());
      }
    }
  }
  ASSERT_GT(expected, 0);
  // A pair's all-reduce brings 2 (q-1)/q = 1 of the bytes to each.
  EXPECT_DOUBLE_EQ(grid.forecast.by_axes.at("data").bytes, expected);
  EXPECT_GT(grid.forecast.by_axes.at("tensor").bytes, 0);
  double all = 0;
  for (const auto& [axes, traffic] : grid.forecast.by_axes) all += traffic.bytes;
  EXPECT_DOUBLE_EQ(grid.forecast.bytes_by_link[static_cast<size_t>(mesh::LinkClass::kHost)], all);
  EXPECT_GT(grid.forecast.collective_s, 0);
  EXPECT_LT(grid.forecast.collective_s, grid.forecast.step_s);
}

TEST(ForecastStep, APipelineWaitsAndSendsBetweenHosts) {
  mesh::Cluster cluster;
  mesh::HostGroup hosts;
  hosts.name = "h";
  hosts.count = 2;
  hosts.profile = "cpu";
  cluster.hosts = {hosts};
  const Case pipeline = MustForecast(Job(1, 1, 2, 4), *mesh::TopologyOfCluster(cluster));
  const Forecast& forecast = pipeline.forecast;
  EXPECT_GT(forecast.idle_of_total, 0.05);
  EXPECT_NEAR(forecast.idle_of_busy, forecast.idle_of_total / (1 - forecast.idle_of_total), 1e-9);
  // Activations forward and gradients back, every microbatch.
  EXPECT_GE(forecast.by_axes.at("pipeline").bytes, 2. * 4 * kBatch * kSequence * kHidden);
  EXPECT_EQ(forecast.bytes_by_link[static_cast<size_t>(mesh::LinkClass::kNetwork)],
            forecast.by_axes.at("pipeline").bytes);
}

TEST(ForecastStep, DevicesThatShareCoresSlowOneAnother) {
  mesh::Topology topology = mesh::Topology::Local(4);
  const ir::JobRequest job = Job(4, 1, 1, 1);
  const double apart_s = MustForecast(job, topology).forecast.step_s;
  topology.hosts["local"].cores = 2;
  const Case shared = MustForecast(job, topology);
  EXPECT_NEAR(shared.forecast.step_s, 2 * apart_s, 1e-9 * apart_s);
  EXPECT_DOUBLE_EQ(shared.forecast.peak_flops_per_s,
                   2 * mesh::DefaultDeviceProfile()->PeakOf(DType::kF32));
  EXPECT_DOUBLE_EQ(PeakFlopsPerS(shared.plan, topology, DType::kF32),
                   shared.forecast.peak_flops_per_s);
  for (mesh::Device& device : topology.devices) device.threads = 2;
  EXPECT_NEAR(MustForecast(job, topology).forecast.step_s, 4 * apart_s, 1e-9 * apart_s);
}

TEST(ForecastStep, RefusesAClusterThatIsTooSmall) {
  const auto plan = MakePlan(Job(2, 1, 1, 1), mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value());
  const auto forecast = ForecastStep(*plan, mesh::Topology::Local(1));
  ASSERT_FALSE(forecast.has_value());
  EXPECT_THAT(forecast.error().message(), HasSubstr("a program for device 1, the cluster 1"));
}

}  // namespace
}  // namespace meshwright::planner
