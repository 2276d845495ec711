// The search for layouts: short models, costs of layouts against the forecast of their programs,
// pins, budgets, unequal devices.
#include "search/find_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/trainer.h"
#include "mesh/cluster.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "search/nearest_choice.h"
#include "search/short_model.h"
#include "tests/scale.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

ir::JobRequest Gpt2Job(int64_t layers, int64_t batch, int64_t vocabulary = 1024) {
  models::Gpt2Config config;
  config.vocabulary = vocabulary;
  config.positions = 256;
  config.width = 256;
  config.layers = layers;
  config.heads = 8;
  ir::TrainSpec train;
  train.global_batch = batch;
  train.sequence = 256;
  train.steps = 10;
  auto job = client::JobBuilder("gpt2").Parallel({}).Train(train).Build(models::MakeGpt2(config));
  EXPECT_TRUE(job.has_value());
  job->parallel = ir::OpenParallel();
  return *job;
}

// Hosts of four A100, slower links between them.
mesh::Topology Gpus(int hosts, int64_t memory_bytes = 0) {
  mesh::Topology topology;
  for (int i = 0; i < 4 * hosts; ++i) {
    mesh::Device device;
    device.worker = fmt::format("w{}", i / 4);
    device.host = fmt::format("h{}", i / 4);
    device.local_index = i % 4;
    device.profile = mesh::KnownDeviceProfiles().at("a100-80g");
    device.memory_bytes = memory_bytes;
    topology.devices.push_back(std::move(device));
  }
  topology.links.host = {3e-6, 1 / 2.4e11};
  topology.links.network = {8e-6, 1 / 2.0e10};
  return topology;
}

planner::Layout LayoutOf(int64_t data, int64_t tensor, int64_t pipeline, int64_t microbatches,
                         const std::string& schedule = "1f1b", int64_t zero = 0) {
  planner::Layout layout;
  layout.degrees[planner::Axis::kData] = data;
  layout.degrees[planner::Axis::kTensor] = tensor;
  layout.pipeline = pipeline;
  layout.microbatches = microbatches;
  layout.schedule = schedule;
  layout.chunks = planner::ShapeOfSchedule(schedule, static_cast<int>(pipeline), 0).value().chunks;
  layout.zero = zero;
  return layout;
}

void Pin(ir::ParallelSpec& parallel, const planner::Layout& layout) {
  planner::PinDegrees(layout, parallel);
  parallel.recompute = "none";
}

TEST(ShortModel, HasEachKindOfLayerOnce) {
  const ir::JobRequest job = Gpt2Job(12, 8);
  const auto model = ShortenModel(planner::FillLayers(job.main().graph));
  ASSERT_TRUE(model.has_value()) << model.error();
  EXPECT_EQ(model->layers(), 3);
  std::vector<int> expected(12, 1);
  expected.front() = 0;
  expected.back() = 2;
  EXPECT_EQ(model->short_layer, expected);
  const ir::JobRequest three = Gpt2Job(3, 8);
  EXPECT_EQ(model->loss.nodes.size(), three.main().graph.nodes.size());
}

TEST(ShortModel, LayersThatDifferStay) {
  const ir::JobRequest job = Gpt2Job(2, 8);
  const auto model = ShortenModel(planner::FillLayers(job.main().graph));
  ASSERT_TRUE(model.has_value()) << model.error();
  EXPECT_EQ(model->short_layer, (std::vector<int>{0, 1}));
}

mesh::SharedProfile HalfAsFast(const mesh::SharedProfile& profile) {
  mesh::DeviceProfile slow = *profile;
  for (mesh::KernelRates& rates : slow.kernels) {
    rates.bytes_per_s /= 2;
    for (mesh::RateCurve& curve : rates.curves) {
      for (mesh::RatePoint& point : curve) point.flops_per_s /= 2;
    }
  }
  return std::make_shared<const mesh::DeviceProfile>(slow);
}

// What the search thinks of a layout is what its programs, replayed, take and hold.
TEST(LayoutCosts, AreThoseOfTheProgramsThatRun) {
  const mesh::Topology topology = Gpus(2);
  const planner::Layout layouts[] = {LayoutOf(1, 1, 1, 1),
                                     LayoutOf(8, 1, 1, 2),
                                     LayoutOf(2, 4, 1, 1),
                                     LayoutOf(2, 2, 2, 4),
                                     LayoutOf(1, 1, 8, 16),
                                     LayoutOf(1, 2, 4, 8, "interleaved"),
                                     LayoutOf(2, 1, 4, 8, "zb-h1"),
                                     LayoutOf(1, 2, 4, 8, "zb-v"),
                                     LayoutOf(1, 2, 4, 8, "zb-h2"),
                                     LayoutOf(2, 1, 4, 4, "v-half"),
                                     LayoutOf(1, 2, 4, 8, "v-min"),
                                     LayoutOf(4, 1, 2, 4, "gpipe"),
                                     LayoutOf(4, 1, 1, 2, "1f1b", 1),
                                     LayoutOf(4, 1, 1, 2, "1f1b", 2),
                                     LayoutOf(4, 1, 2, 2, "1f1b", 3)};
  for (const planner::Layout& layout : layouts) {
    if (LeavesOut(6)) continue;
    ir::JobRequest job = Gpt2Job(16, 64);
    Pin(job.parallel, layout);
    const auto found = FindLayout(job, topology, {}, kStill);
    ASSERT_TRUE(found.has_value()) << layout.ToString() << ": " << found.error();
    const LayoutCost& cost = found->best.front();
    const auto plan = planner::MakePlanOf(job, topology, cost.layout);
    ASSERT_TRUE(plan.has_value()) << cost.layout.ToString() << ": " << plan.error();
    const auto forecast = planner::ForecastStep(*plan, topology);
    ASSERT_TRUE(forecast.has_value()) << forecast.error();
    EXPECT_NEAR(cost.step_s / forecast->step_s, 1.0, 0.05) << layout.ToString();
    int64_t expected = 0;
    for (const StageCost& stage : cost.stages) expected = std::max(expected, stage.memory_bytes());
    int64_t planned = 0;
    for (const auto& memory : plan->memory) planned = std::max(planned, memory.total_bytes);
    EXPECT_NEAR(static_cast<double>(expected) / static_cast<double>(planned), 1.0, 0.15)
        << layout.ToString();
  }
}

// The head reads the weight of the embedding: their gradients meet once per step, over a link that
// takes longer for them than the devices compute.
TEST(LayoutCosts, TiedWeightsAreSummedOverTheirLink) {
  mesh::Topology topology = Gpus(2);
  topology.links.network = {2e-5, 1e-9};
  for (const planner::Layout& layout :
       {LayoutOf(4, 1, 2, 4), LayoutOf(1, 4, 2, 4), LayoutOf(2, 1, 4, 8, "zb-h1"),
        LayoutOf(4, 1, 2, 4, "1f1b", 1), LayoutOf(4, 1, 2, 4, "zb-v")}) {
    ir::JobRequest job = Gpt2Job(8, 16);
    Pin(job.parallel, layout);
    const auto found = FindLayout(job, topology, {}, kStill);
    ASSERT_TRUE(found.has_value()) << layout.ToString() << ": " << found.error();
    const auto plan = planner::MakePlanOf(job, topology, found->best.front().layout);
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const auto forecast = planner::ForecastStep(*plan, topology);
    ASSERT_TRUE(forecast.has_value()) << forecast.error();
    EXPECT_NEAR(found->best.front().step_s / forecast->step_s, 1.0, 0.1) << layout.ToString();
  }
}

// Whatever its schedule, degrees and what ZeRO splits; late stages of schedules that put W off hold
// the most. The vocabulary is odd: its rows cannot be split, and blocks of its columns are packed.
TEST(LayoutCosts, MemoryOfEachStageIsThatOfItsProgram) {
  const mesh::Topology topology = Gpus(2);
  const planner::Layout layouts[] = {LayoutOf(1, 1, 8, 16, "zb-h1"),
                                     LayoutOf(1, 1, 8, 16, "zb-v"),
                                     LayoutOf(1, 1, 8, 16, "zb-h2"),
                                     LayoutOf(1, 1, 8, 16, "v-half"),
                                     LayoutOf(2, 1, 4, 8, "v-half", 2),
                                     LayoutOf(1, 1, 8, 16, "v-min"),
                                     LayoutOf(1, 1, 8, 16, "interleaved"),
                                     LayoutOf(8, 1, 1, 2),
                                     LayoutOf(8, 1, 1, 2, "1f1b", 1),
                                     LayoutOf(8, 1, 1, 2, "1f1b", 2),
                                     LayoutOf(8, 1, 1, 2, "1f1b", 3),
                                     LayoutOf(1, 4, 1, 2),
                                     LayoutOf(1, 8, 1, 1),
                                     LayoutOf(2, 2, 2, 4, "1f1b", 0),
                                     LayoutOf(2, 2, 2, 4, "1f1b", 1),
                                     LayoutOf(2, 2, 2, 4, "1f1b", 2),
                                     LayoutOf(2, 2, 2, 4, "1f1b", 3),
                                     LayoutOf(2, 1, 4, 8, "zb-h1", 1),
                                     LayoutOf(2, 1, 4, 8, "zb-v", 2),
                                     LayoutOf(4, 1, 2, 4, "gpipe", 3),
                                     LayoutOf(1, 2, 4, 8, "zb-h1")};
  for (const int64_t vocabulary : {1024, 5003}) {
    for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
      size_t turn = vocabulary == 1024 && dtype == ir::DType::kF32 ? 0 : 1;
      for (const planner::Layout& layout : layouts) {
        // All of them in one way, and every third in the others.
        if (LeavesOut(20) || (turn != 0 && turn++ % 3 != 0)) continue;
        ir::JobRequest job = Gpt2Job(16, 16, vocabulary);
        job.train.compute_dtype = dtype;
        Pin(job.parallel, layout);
        const auto found = FindLayout(job, topology, {}, kStill);
        ASSERT_TRUE(found.has_value()) << found.error();
        const LayoutCost& cost = found->best.front();
        const auto plan = planner::MakePlanOf(job, topology, cost.layout);
        ASSERT_TRUE(plan.has_value()) << plan.error();
        for (size_t stage = 0; stage < cost.stages.size(); ++stage) {
          const auto& memory =
              plan->memory[stage * static_cast<size_t>(layout.data() * layout.tensor())];
          const auto planned = static_cast<double>(memory.total_bytes);
          const auto expected = static_cast<double>(cost.stages[stage].memory_bytes());
          EXPECT_NEAR(expected / planned, 1.0, 0.05)
              << layout.ToString() << ", vocabulary " << vocabulary << ", " << ir::DTypeName(dtype)
              << ", stage " << stage;
        }
      }
    }
  }
}

// Head and embedding are half of this model: what update, ZeRO and recomputation add is large.
TEST(LayoutCosts, MemoryIsAboutThatOfTheProgramWhateverIsRecomputed) {
  const mesh::Topology topology = Gpus(2);
  std::vector<planner::Layout> layouts;
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const char* schedule : {"1f1b", "zb-v"}) {
      layouts.push_back(LayoutOf(2, 1, 2, 4, schedule, zero));
      layouts.push_back(LayoutOf(2, 2, 2, 4, schedule, zero));
      layouts.back().sequence_parallel = true;
    }
    for (const int64_t microbatches : {1, 2}) {
      layouts.push_back(LayoutOf(8, 1, 1, microbatches, "1f1b", zero));
      layouts.push_back(LayoutOf(4, 2, 1, microbatches, "1f1b", zero));
      layouts.push_back(LayoutOf(4, 1, 2, microbatches, "1f1b", zero));
    }
  }
  for (const char* mode : {"none", "selective", "full"}) {
    for (const planner::Layout& layout : layouts) {
      if (LeavesOut(20)) continue;
      ir::JobRequest job = Gpt2Job(4, 16, 5003);
      Pin(job.parallel, layout);
      job.parallel.recompute = mode;
      const auto found = FindLayout(job, topology, {}, kStill);
      ASSERT_TRUE(found.has_value()) << found.error();
      const LayoutCost& cost = found->best.front();
      const auto plan = planner::MakePlanOf(job, topology, cost.layout);
      ASSERT_TRUE(plan.has_value()) << plan.error();
      for (size_t stage = 0; stage < cost.stages.size(); ++stage) {
        const auto& memory =
            plan->memory[stage * static_cast<size_t>(layout.data() * layout.tensor())];
        const double ratio = static_cast<double>(cost.stages[stage].memory_bytes()) /
                             static_cast<double>(memory.total_bytes);
        EXPECT_GT(ratio, 0.83) << mode << " " << layout.ToString() << ", stage " << stage;
        EXPECT_LT(ratio, 1.25) << mode << " " << layout.ToString() << ", stage " << stage;
      }
    }
  }
}

// The estimate of what layouts need is up to a quarter too high: what would fit is not refused.
TEST(FindLayout, WhatTheProgramsFitIntoIsNotRefused) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  ir::JobRequest job = Gpt2Job(4, 16, 5003);
  planner::Layout layout = LayoutOf(8, 1, 1, 1, "1f1b", 1);
  Pin(job.parallel, layout);
  job.parallel.recompute = "full";
  const auto roomy = FindPlan(job, Gpus(2), {}, kStill);
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  const int64_t needed = roomy->plan.memory.front().total_bytes;
  job.parallel.schedule = "auto";  // of one stage: asks the search, which has one layout
  for (const int64_t spare : {int64_t{0}, needed / 20}) {
    const auto tight = FindPlan(job, Gpus(2, needed + spare), {}, kStill);
    ASSERT_TRUE(tight.has_value()) << spare << ": " << tight.error();
    for (const auto& memory : tight->plan.memory) {
      EXPECT_LE(memory.total_bytes, needed + spare);
    }
  }
}

TEST(FindLayout, NoPinnedLayoutIsFaster) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const mesh::Topology topology = Gpus(2);
  const auto best = FindLayout(Gpt2Job(8, 64), topology, {}, kStill);
  ASSERT_TRUE(best.has_value()) << best.error();
  EXPECT_EQ(best->gap, 0);
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t pipeline : {1, 2, 4}) {
      for (const int64_t data : {1, 2, 4, 8}) {
        if (tensor * pipeline * data > 8 || LeavesOut(9)) continue;
        ir::JobRequest job = Gpt2Job(8, 64);
        job.parallel.tensor = tensor;
        job.parallel.pipeline = pipeline;
        job.parallel.data = data;
        const auto pinned = FindLayout(job, topology, {}, kStill);
        ASSERT_TRUE(pinned.has_value()) << pinned.error();
        const planner::Layout& layout = pinned->best.front().layout;
        EXPECT_EQ(layout.tensor(), tensor);
        EXPECT_EQ(layout.pipeline, pipeline);
        EXPECT_EQ(layout.data(), data);
        EXPECT_GE(pinned->best.front().step_s, best->best.front().step_s * (1 - 1e-9));
      }
    }
  }
}

TEST(FindLayout, ShortMemoryIsMetByRecomputingAndSplitting) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const auto roomy = FindPlan(Gpt2Job(8, 64), Gpus(1), {}, kStill);
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  const int64_t needed = roomy->plan.memory.front().total_bytes;
  for (const int64_t part : {2, 4}) {
    const auto tight = FindPlan(Gpt2Job(8, 64), Gpus(1, needed / part), {}, kStill);
    ASSERT_TRUE(tight.has_value()) << part << ": " << tight.error();
    for (const auto& memory : tight->plan.memory) EXPECT_LE(memory.total_bytes, needed / part);
    ASSERT_FALSE(tight->found.best.empty());
    EXPECT_EQ(tight->found.best.front().layout.ToString(), tight->plan.layout.ToString());
  }
}

TEST(FindLayout, SaysWhatIsNearestWhenNothingFits) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const auto found = FindLayout(Gpt2Job(8, 64), Gpus(1, 1 << 20), {}, kStill);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(found.error().message().find("no layout fits: the nearest is"), std::string::npos)
      << found.error();
  EXPECT_NE(found.error().message().find("optimizer_memory, weights_memory, gradients_memory, "
                                         "activations_memory = \"auto\""),
            std::string::npos)
      << found.error();
}

TEST(FindLayout, ASearchThatFitsNothingEndsWithItsTime) {
  FindOptions hasty;
  hasty.timeout_ms = 0;
  hasty.patience_ms = 0;
  const auto found = FindLayout(Gpt2Job(4, 16), Gpus(1, 1 << 20), hasty, kStill);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(found.error().message().find("the time of the search was over"), std::string::npos)
      << found.error();
}

// A program that stands for a stage is as large and as slow as the worst of its devices allows.
TEST(FindLayout, OneProgramPerStageStandsForDevicesThatDiffer) {
  mesh::Topology topology = Gpus(1);
  topology.devices.resize(2);
  planner::Layout layout = LayoutOf(2, 1, 1, 1);
  const ir::JobRequest job = Gpt2Job(4, 16);
  const auto seconds = [&](planner::PlanScope scope) {
    const auto plan = planner::MakePlanOf(job, topology, layout, scope);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    return planner::ForecastStep(*plan, topology)->step_s;
  };
  using enum planner::PlanScope;
  const double equal_s = seconds(kOnePerStage);
  topology.devices[1].profile = HalfAsFast(topology.devices[1].profile);
  EXPECT_NEAR(seconds(kOnePerStage) / seconds(kAllDevices), 1, 1e-6);
  EXPECT_GT(seconds(kOnePerStage), 1.3 * equal_s);
  topology.devices[1].memory_bytes = 1 << 20;
  const auto small = planner::MakePlanOf(job, topology, layout, kOnePerStage);
  ASSERT_FALSE(small.has_value());
  EXPECT_EQ(small.error().code(), StatusCode::kResourceExhausted);
}

TEST(FindLayout, PinsThatContradictAreNamed) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  ir::JobRequest job = Gpt2Job(4, 64);
  job.parallel.data = 3;
  const auto batch = FindLayout(job, Gpus(2), {}, kStill);
  ASSERT_FALSE(batch.has_value());
  EXPECT_NE(batch.error().message().find("data=3 does not divide"), std::string::npos)
      << batch.error();
  job = Gpt2Job(4, 64);
  job.parallel.pipeline = 5;
  const auto layers = FindLayout(job, Gpus(2), {}, kStill);
  ASSERT_FALSE(layers.has_value());
  EXPECT_NE(layers.error().message().find("needs at least 5 layers"), std::string::npos)
      << layers.error();
}

TEST(FindLayout, ASlowDeviceGetsFewerLayers) {
  mesh::Topology topology = Gpus(1);
  topology.devices.resize(2);
  topology.devices[1].profile = HalfAsFast(topology.devices[1].profile);
  ir::JobRequest job = Gpt2Job(12, 64);
  job.parallel.data = 1;
  job.parallel.tensor = 1;
  job.parallel.pipeline = 2;
  job.parallel.schedule = "1f1b";
  const auto found = FindLayout(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  const std::vector<int>& layers = found->best.front().layout.part_layers;
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_GE(layers[0], 7);
  EXPECT_LE(layers[0], 9);
}

// Two equal stages need an even number of devices.
TEST(FindLayout, AThirdDeviceIsNotIdle) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  mesh::Topology topology = Gpus(1);
  ir::JobRequest job = Gpt2Job(8, 64);
  job.parallel.data = 0;
  const auto fastest = [&](size_t devices) {
    topology = Gpus(1);
    topology.devices.resize(devices);
    const auto found = FindLayout(job, topology, {}, kStill);
    EXPECT_TRUE(found.has_value()) << found.error();
    return found.has_value() ? found->best.front() : LayoutCost();
  };
  const LayoutCost two = fastest(2);
  const LayoutCost three = fastest(3);
  EXPECT_EQ(three.layout.device_count(), 3) << three.layout.ToString();
  EXPECT_LT(three.step_s, 0.85 * two.step_s) << three.layout.ToString();
  const auto plan = planner::MakePlanOf(job, topology, three.layout);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const auto forecast = planner::ForecastStep(*plan, topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  EXPECT_NEAR(three.step_s / forecast->step_s, 1.0, 0.05) << three.layout.ToString();
}

// What a stage takes is of the devices that it lies on, wherever they stand in the cluster.
TEST(FindLayout, StagesLieOnTheDevicesThatTheLayoutNames) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  mesh::Topology topology = Gpus(1);
  topology.devices.resize(3);
  topology.devices[0].profile = HalfAsFast(topology.devices[0].profile);
  ir::JobRequest job = Gpt2Job(12, 64);
  job.parallel.data = 0;
  const auto found = FindLayout(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  const LayoutCost& best = found->best.front();
  const auto plan = planner::MakePlanOf(job, topology, best.layout);
  ASSERT_TRUE(plan.has_value()) << best.layout.ToString() << ": " << plan.error();
  const auto forecast = planner::ForecastStep(*plan, topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  EXPECT_NEAR(best.step_s / forecast->step_s, 1.0, 0.05) << best.layout.ToString();
}

TEST(FindLayout, PinnedMeshesOfStagesAreTaken) {
  mesh::Topology topology = Gpus(1);
  topology.devices.resize(4);
  ir::JobRequest job = Gpt2Job(8, 64);
  job.parallel = ir::OpenParallel();
  job.parallel.stage_meshes = "1x2,1x1";
  const auto found = FindLayout(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  for (const LayoutCost& cost : found->best) {
    EXPECT_EQ(planner::FormatStageDegrees(cost.layout.stage_degrees), "1x2,1x1");
  }
  job.parallel.stage_meshes = "4x1,1x1";
  const auto large = FindLayout(job, topology, {}, kStill);
  ASSERT_FALSE(large.has_value());
  EXPECT_NE(large.error().message().find("needs 5 devices, the cluster has 4"), std::string::npos)
      << large.error();
}

// Four devices of one thread on two cores are about as fast as two.
TEST(FindLayout, DevicesThatShareCoresAreNotCountedTwice) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  mesh::Topology topology = mesh::Topology::Local(4);
  topology.hosts[topology.devices[0].host].cores = 2;
  const auto shared = FindLayout(Gpt2Job(4, 16), topology, {}, kStill);
  ASSERT_TRUE(shared.has_value()) << shared.error();
  const LayoutCost& best = shared->best.front();
  const auto plan = planner::MakePlanOf(Gpt2Job(4, 16), topology, best.layout);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const auto forecast = planner::ForecastStep(*plan, topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  EXPECT_NEAR(best.step_s / forecast->step_s, 1.0, 0.05) << best.layout.ToString();
  topology.devices.resize(2);
  const auto two = FindLayout(Gpt2Job(4, 16), topology, {}, kStill);
  ASSERT_TRUE(two.has_value()) << two.error();
  EXPECT_GE(best.step_s, 0.95 * two->best.front().step_s) << best.layout.ToString();
}

// Blocks of a sequence lie apart where a microbatch has several rows: four microbatches of one row
// gather without packing. On this machine that is worth a little more than it costs.
TEST(FindPlan, OfDevicesThatShareCoresFewerMicrobatchesAreTakenWhereTheyAreAboutAsFast) {
  mesh::Topology topology = mesh::Topology::Local(4);
  topology.hosts[topology.devices[0].host].cores = 4;
  topology.links.host = {1e-7, 1e-11};
  mesh::DeviceProfile profile = *mesh::DefaultDeviceProfile();
  profile.launch_s = 0;
  profile.Rates(mesh::KernelClass::kGather).bytes_per_s *= 10;
  profile.Rates(mesh::KernelClass::kElementwise).bytes_per_s /= 1.8;
  const auto shared = std::make_shared<const mesh::DeviceProfile>(profile);
  for (mesh::Device& device : topology.devices) device.profile = shared;
  ir::JobRequest job = Gpt2Job(8, 4);
  planner::PinDegrees(LayoutOf(1, 4, 1, 0), job.parallel);
  job.parallel.sequence_parallel = true;
  job.parallel.schedule = "auto";  // of one stage: asks the search
  const auto searched = FindLayout(job, topology, {}, kStill);
  ASSERT_TRUE(searched.has_value()) << searched.error();
  ASSERT_EQ(searched->best.front().layout.microbatches, 4) << "or there is nothing to see";
  const auto found = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(found->plan.layout.microbatches, 1);
  ASSERT_FALSE(found->found.best.empty());
  EXPECT_EQ(found->found.best.front().layout.microbatches, 1);
  job.parallel.microbatches = 4;
  const auto pinned = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(pinned.has_value()) << pinned.error();
  EXPECT_EQ(pinned->plan.layout.microbatches, 4);
}

// The price of such devices is a bound: plans are compared by their schedules, replayed.
TEST(FindPlan, OfDevicesThatShareCoresTheFastestForecastIsTakenUnlessItCallsFarMore) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  mesh::Topology topology = mesh::Topology::Local(4);
  topology.hosts[topology.devices[0].host].cores = 2;
  const ir::JobRequest job = Gpt2Job(4, 16);
  const auto found = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  const auto plan_of = [&](const planner::Layout& layout) {
    auto plan = planner::MakePlanOf(job, topology, layout);
    EXPECT_TRUE(plan.has_value()) << layout.ToString();
    return *std::move(plan);
  };
  const std::vector<LayoutCost>& best = found->found.best;
  ASSERT_GE(best.size(), 2u);
  EXPECT_EQ(best.front().layout.ToString(), found->plan.layout.ToString());
  const double chosen_s = best.front().step_s;
  double fastest_s = chosen_s;
  std::string fastest;
  for (const LayoutCost& cost : best) {
    const planner::Plan plan = plan_of(cost.layout);
    const double step_s = planner::ForecastStep(plan, topology)->step_s;
    EXPECT_DOUBLE_EQ(cost.step_s, step_s)
        << "of a forecast, as the others: " << plan.layout.ToString();
    if (step_s >= fastest_s) continue;
    fastest_s = step_s;
    fastest = cost.layout.ToString();
    EXPECT_GE(CallsOf(plan), 2 * CallsOf(found->plan)) << fastest;
  }
  EXPECT_LE(chosen_s, 1.02 * fastest_s);
  EXPECT_LE((1 - found->found.gap) * chosen_s, fastest_s * (1 + 1e-9)) << "the gap says so";
  std::string notes;
  for (const std::string& note : found->plan.notes) notes += note + "\n";
  EXPECT_TRUE(fastest.empty() || notes.find(fastest) != std::string::npos) << notes;
}

TEST(FindLayout, ProgressMayEndTheSearch) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  int calls = 0;
  FindOptions options;
  options.progress = [&](const FindProgress& progress) {
    ++calls;
    EXPECT_GT(progress.best_s, 0);
    EXPECT_GE(progress.gap, 0);
    return false;
  };
  const auto found = FindLayout(Gpt2Job(4, 16), Gpus(1), options, kStill);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(calls, 1);
  const auto best = FindLayout(Gpt2Job(4, 16), Gpus(1), {}, kStill);
  ASSERT_TRUE(best.has_value()) << best.error();
  // The gap of what was found in a hurry covers the best.
  EXPECT_GE(best->best.front().step_s, found->best.front().step_s * (1 - found->gap) * (1 - 1e-9));
}

}  // namespace
}  // namespace meshwright::search
