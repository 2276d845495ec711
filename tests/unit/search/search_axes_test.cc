// Expert and context axes in the search for layouts: its bytes and seconds against those of the
// programs, and the degrees that it chooses where they are open.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/trainer.h"
#include "mesh/cluster.h"
#include "models/llama.h"
#include "models/mixture.h"
#include "planner/forecast.h"
#include "planner/resolve_layout.h"
#include "report/plan_reasons.h"
#include "search/find_layout.h"
#include "search/least_memory.h"
#include "search/open_choices.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

using report::AxisDecision;
using report::AxisReason;
using report::ExplainAxes;

using planner::Axis;
using planner::Layout;

ir::JobRequest Built(const client::TrainerFunctions& functions, int64_t batch, int64_t sequence) {
  ir::TrainSpec train;
  train.global_batch = batch;
  train.sequence = sequence;
  train.steps = 10;
  auto job = client::JobBuilder("axes").Parallel({}).Train(train).Build(functions);
  EXPECT_TRUE(job.has_value()) << job.error();
  job->parallel = ir::OpenParallel();
  return *job;
}

models::LlamaConfig SmallLlama(int64_t layers) {
  models::LlamaConfig config;
  config.vocabulary = 1024;
  config.width = 256;
  config.inner = 512;
  config.layers = layers;
  config.heads = 8;
  config.kv_heads = 4;
  return config;
}

ir::JobRequest MixtureJob(int64_t layers, int64_t experts, int64_t inner, double capacity_factor) {
  models::MixtureConfig config;
  config.llama = SmallLlama(layers);
  config.llama.inner = inner;
  config.experts.experts = experts;
  config.experts.capacity_factor = capacity_factor;
  return Built(models::MakeMixture(config), 16, 256);
}

// Hosts of four A100.
mesh::Topology Gpus(int hosts, int64_t memory_bytes = 0) {
  mesh::Topology topology;
  for (int i = 0; i < 4 * hosts; ++i) {
    mesh::Device device;
    device.worker = device.host = fmt::format("h{}", i / 4);
    device.local_index = i % 4;
    device.profile = mesh::KnownDeviceProfiles().at("a100-80g");
    device.memory_bytes = memory_bytes;
    topology.devices.push_back(std::move(device));
  }
  topology.links.host = {3e-6, 1 / 2.4e11};
  topology.links.network = {8e-6, 1 / 2.0e10};
  return topology;
}

struct Case {
  int64_t data = 1;
  int64_t expert = 1;  // of data
  int64_t context = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t microbatches = 1;
  int64_t zero = 0;
};

Layout LayoutOf(const Case& of) {
  Layout layout;
  layout.degrees[Axis::kData] = of.data / of.expert;
  layout.degrees[Axis::kExpert] = of.expert;
  layout.degrees[Axis::kContext] = of.context;
  layout.degrees[Axis::kTensor] = of.tensor;
  layout.pipeline = of.pipeline;
  layout.microbatches = of.microbatches;
  layout.zero = of.zero;
  return layout;
}

// The fullest stage and the step, of the search over those of the programs.
void ExpectAsPrograms(ir::JobRequest job, const Layout& layout, double seconds, double bytes) {
  const mesh::Topology topology = Gpus(2);
  planner::PinDegrees(layout, job.parallel);
  job.parallel.recompute = "none";
  const auto found = FindLayout(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << layout.ToString() << ": " << found.error();
  const LayoutCost& cost = found->best.front();
  const auto plan = planner::MakePlanOf(job, topology, cost.layout);
  ASSERT_TRUE(plan.has_value()) << layout.ToString() << ": " << plan.error();
  EXPECT_EQ(plan->layout.degrees, layout.degrees);
  const auto forecast = planner::ForecastStep(*plan, topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  EXPECT_NEAR(cost.step_s / forecast->step_s, 1.0, seconds) << layout.ToString();
  const auto stage_devices = static_cast<size_t>(layout.degrees.device_count());
  for (size_t stage = 0; stage < cost.stages.size(); ++stage) {
    const auto planned = static_cast<double>(plan->memory[stage * stage_devices].total_bytes);
    const auto expected = static_cast<double>(cost.stages[stage].memory_bytes());
    EXPECT_NEAR(expected / planned, 1.0, bytes) << layout.ToString() << ", stage " << stage;
  }
}

TEST(SearchAxes, MixturesCostAndHoldWhatTheirProgramsDo) {
  const Case cases[] = {{8, 2},
                        {8, 8},
                        {8, 4, 1, 1, 1, 2},
                        {4, 4, 1, 2, 1, 2},
                        {4, 2, 1, 1, 2, 4},
                        {4, 4, 1, 1, 2, 4},
                        {4, 2, 2, 1, 1, 2},
                        {8, 2, 1, 1, 1, 2, 1},
                        {8, 2, 1, 1, 1, 2, 2},
                        {8, 2, 1, 1, 1, 2, 3},
                        {4, 2, 1, 1, 2, 4, 3}};
  for (const double capacity_factor : {0.0, 1.25}) {
    for (const Case& of : cases) {
      ExpectAsPrograms(MixtureJob(4, 8, 512, capacity_factor), LayoutOf(of), 0.1, 0.1);
    }
  }
}

TEST(SearchAxes, SharedRowsCostAndHoldWhatTheirProgramsDo) {
  const ir::JobRequest job = Built(models::MakeLlama(SmallLlama(4)), 8, 1024);
  const Case cases[] = {
      {1, 1, 8},          {2, 1, 4, 1, 1, 2},    {1, 1, 4, 2},         {1, 1, 2, 2, 2, 4},
      {2, 1, 2, 1, 2, 4}, {4, 1, 2, 1, 1, 2, 1}, {4, 1, 2, 1, 1, 2, 3}};
  for (const char* way : {"gather", "ring", "ulysses"}) {
    for (const Case& of : cases) {
      if (std::string_view(way) == "ulysses" && of.context * of.tensor > 4) continue;
      ir::JobRequest own = job;
      own.parallel.context_attention = way;
      ExpectAsPrograms(own, LayoutOf(of), 0.1, 0.1);
    }
  }
}

// Weights of the experts are 64 x 3 x 256 x 1024 x 4 bytes a layer: a device holds no layer's, and
// gathering them for every microbatch takes longer than moving its tokens.
TEST(SearchAxes, AMixtureThatDoesNotFitIsGivenAnExpertDegree) {
  const ir::JobRequest job = MixtureJob(2, 64, 1024, 1.25);
  const int64_t all = LeastStateBytes(job);
  const mesh::Topology topology = Gpus(4, all / 4);
  const auto found = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_GT(found->plan.layout.expert(), 1) << found->plan.layout.ToString();
}

// One row of 65,536 tokens: no replicas can share the work, and its activations do not fit.
TEST(SearchAxes, ALongRowIsGivenAContextDegreeAndExplainSaysWhy) {
  ir::JobRequest job = Built(models::MakeLlama(SmallLlama(2)), 1, 65536);
  const mesh::Topology topology = Gpus(2);
  const auto found = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_GT(found->plan.layout.context(), 1) << found->plan.layout.ToString();
  const auto forecast = planner::ForecastStep(found->plan, topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  for (const AxisReason& reason : ExplainAxes({job, topology, found->plan, *forecast}, kStill)) {
    if (reason.axis != "context") continue;
    EXPECT_EQ(reason.decision, AxisDecision::kSearched);
    EXPECT_EQ(reason.other, "1");
    EXPECT_GT(reason.more_s, 0) << reason.refused;
  }
  job.parallel.context = 1;
  const auto without = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(without.has_value()) << without.error();
  EXPECT_EQ(without->plan.layout.context(), 1);
}

TEST(SearchAxes, OpenDegreesAreThoseThatTheModelHasUseFor) {
  const ir::JobRequest mixture = MixtureJob(2, 12, 64, 0);
  EXPECT_EQ(CommonExperts(mixture), 12);
  EXPECT_EQ(OpenChoices(mixture).ExpertDegrees(24), (std::vector<int64_t>{1, 2, 4, 12}));
  EXPECT_EQ(OpenChoices(mixture).ContextDegrees(64), (std::vector<int64_t>{1}));
  const ir::JobRequest dense = Built(models::MakeLlama(SmallLlama(2)), 2, 32768);
  EXPECT_EQ(OpenChoices(dense).ExpertDegrees(24), (std::vector<int64_t>{1}));
  EXPECT_EQ(OpenChoices(dense).ContextDegrees(64), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(OpenChoices(dense).ContextDegrees(3), (std::vector<int64_t>{1, 2}));
  ir::JobRequest pinned = mixture;
  pinned.parallel = {};
  EXPECT_FALSE(LeavesOpen(pinned));
  pinned.parallel.expert = 0;
  EXPECT_TRUE(LeavesOpen(pinned));
  ir::JobRequest of_rows = dense;
  of_rows.parallel = {};
  of_rows.parallel.expert = 0;
  EXPECT_FALSE(LeavesOpen(of_rows));
  of_rows.parallel.context = 0;
  EXPECT_TRUE(LeavesOpen(of_rows));
}

}  // namespace
}  // namespace meshwright::search
