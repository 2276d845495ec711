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
  for (size_t stage = 0; stage < cost.stages.size(); ++stage) {
    const auto first = static_cast<size_t>(layout.FirstDevice(static_cast<int>(stage)));
    const auto planned = static_cast<double>(plan->memory[first].total_bytes);
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

// Meshes of stages: data x tensor, of which `expert` and `context` devices share.
struct StagesCase {
  std::vector<planner::Degrees> stages;
  int64_t expert = 1;
  int64_t context = 1;
  int64_t microbatches = 2;
  int64_t zero = 0;
};

Layout LayoutOf(const StagesCase& of) {
  Layout layout;
  std::vector<planner::Degrees> stages = of.stages;
  for (planner::Degrees& stage : stages) {
    planner::ShareExperts(of.expert, stage);
    stage[Axis::kContext] = of.context;
  }
  planner::SetStageDegrees(stages, layout);
  layout.microbatches = of.microbatches;
  layout.zero = of.zero;
  return layout;
}

TEST(SearchAxes, StagesThatDifferCostAndHoldWhatTheirProgramsDo) {
  const StagesCase of_experts[] = {{{{4, 1}, {2, 1}}, 2},
                                   {{{2, 1}, {4, 1}}, 2, 1, 2, 1},
                                   {{{4, 1}, {2, 2}}, 4},
                                   {{{4, 1}, {1, 2}}, 2, 1, 4, 3}};
  for (const StagesCase& of : of_experts) {
    ExpectAsPrograms(MixtureJob(4, 8, 512, 1.25), LayoutOf(of), 0.15, 0.1);
  }
  const ir::JobRequest job = Built(models::MakeLlama(SmallLlama(4)), 8, 1024);
  const StagesCase of_rows[] = {
      {{{1, 1}, {2, 1}}, 1, 2}, {{{2, 1}, {1, 2}}, 1, 2, 2, 1}, {{{1, 1}, {1, 2}}, 1, 2, 4}};
  for (const char* way : {"gather", "ring", "ulysses"}) {
    for (const StagesCase& of : of_rows) {
      ir::JobRequest own = job;
      own.parallel.context_attention = way;
      ExpectAsPrograms(own, LayoutOf(of), 0.1, 0.1);
    }
  }
}

// Hosts of four and of two devices: equal stages leave devices idle, or are many.
mesh::Topology SixGpus() {
  mesh::Topology topology = Gpus(2);
  topology.devices.resize(6);
  return topology;
}

// Less to search: what is left open are degrees, stages and microbatches.
void PinTheRest(ir::ParallelSpec& pins) {
  pins.schedule = "1f1b";
  pins.zero = 0;
  pins.recompute = "none";
}

// The best layout of stages that differ, with a plan whose programs are verified.
LayoutCost BestOfUnequalStages(ir::JobRequest job) {
  PinTheRest(job.parallel);
  const mesh::Topology topology = SixGpus();
  const auto found = FindLayout(job, topology, {}, kStill);
  EXPECT_TRUE(found.has_value()) << found.error();
  if (!found.has_value()) return {};
  const auto best =
      std::find_if(found->best.begin(), found->best.end(),
                   [](const LayoutCost& cost) { return !cost.layout.stage_degrees.empty(); });
  EXPECT_NE(best, found->best.end());
  if (best == found->best.end()) return {};
  const auto plan = planner::MakePlanOf(job, topology, best->layout);
  EXPECT_TRUE(plan.has_value()) << best->layout.ToString() << ": " << plan.error();
  return *best;
}

TEST(SearchAxes, StagesThatDifferAreFoundWithTheAxesThatAJobPins) {
  ir::JobRequest mixture = MixtureJob(4, 8, 512, 1.25);
  mixture.parallel.expert = 2;
  EXPECT_EQ(BestOfUnequalStages(mixture).layout.expert(), 2);
  ir::JobRequest rows = Built(models::MakeLlama(SmallLlama(4)), 4, 1024);
  rows.parallel.context = 2;
  const Layout shared = BestOfUnequalStages(rows).layout;
  for (const planner::Degrees& stage : shared.stage_degrees) EXPECT_EQ(stage.context(), 2);
}

double ForecastOf(const ir::JobRequest& job, const mesh::Topology& topology) {
  const auto found = FindPlan(job, topology, {}, kStill);
  EXPECT_TRUE(found.has_value()) << found.error();
  if (!found.has_value()) return 0;
  const auto forecast = planner::ForecastStep(found->plan, topology);
  EXPECT_TRUE(forecast.has_value()) << forecast.error();
  return forecast.has_value() ? forecast->step_s : 0;
}

// What more is looked at makes no plan slower: open stages than one, searched shardings than rules.
TEST(SearchAxes, WhatIsSearchedIsNoSlowerThanTheRules) {
  ir::JobRequest mixture = MixtureJob(2, 8, 512, 1.25);
  mixture.parallel.expert = 2;
  ir::JobRequest rows = Built(models::MakeLlama(SmallLlama(2)), 4, 1024);
  rows.parallel.context = 2;
  for (ir::JobRequest job : {mixture, rows}) {
    PinTheRest(job.parallel);
    const mesh::Topology topology = SixGpus();
    const double open_s = ForecastOf(job, topology);
    job.parallel.pipeline = 1;
    const double one_stage_s = ForecastOf(job, topology);
    EXPECT_LE(open_s, one_stage_s * 1.02) << "2 % are for shorter programs";
    job.parallel.tensor = 1;
    job.parallel.data = 2;
    job.parallel.microbatches = 1;
    const double rules_s = ForecastOf(job, topology);
    job.parallel.shardings = "search";
    EXPECT_LE(ForecastOf(job, topology), rules_s * (1 + 1e-9));
  }
}

// The search has room for a share of the experts alone, and finds that it fits.
TEST(SearchAxes, SearchedShardingsCountExpertsAsShared) {
  ir::JobRequest job = MixtureJob(2, 64, 1024, 1.25);
  job.parallel = {};
  job.parallel.data = job.parallel.expert = 4;
  job.parallel.recompute = "none";
  mesh::Topology topology = Gpus(1);
  const auto rules = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(rules.has_value()) << rules.error();
  const int64_t bytes = planner::FullestBytes(rules->plan.memory);
  for (mesh::Device& device : topology.devices) device.memory_bytes = bytes + bytes / 4;
  job.parallel.shardings = "search";
  const auto found = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(found->plan.notes.back().find("no answer"), std::string::npos)
      << found->plan.notes.back();
  EXPECT_LE(planner::FullestBytes(found->plan.memory), bytes + bytes / 4);
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
