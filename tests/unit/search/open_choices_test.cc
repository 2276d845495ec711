// Which schedules are tried, and which of them are taken where memory is short.
#include "search/open_choices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "client/trainer.h"
#include "mesh/cluster.h"
#include "models/gpt2.h"
#include "search/find_layout.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

// Four stages on four A100, sixteen microbatches, nothing computed again; the schedule is open.
ir::JobRequest FourStageJob() {
  models::Gpt2Config config;
  config.vocabulary = 1024;
  config.positions = 256;
  config.width = 256;
  config.layers = 16;
  config.heads = 8;
  ir::TrainSpec train;
  train.global_batch = 16;
  train.sequence = 256;
  train.steps = 10;
  auto job = client::JobBuilder("gpt2").Parallel({}).Train(train).Build(models::MakeGpt2(config));
  EXPECT_TRUE(job.has_value());
  job->parallel = ir::OpenParallel();
  job->parallel.data = 1;
  job->parallel.tensor = 1;
  job->parallel.pipeline = 4;
  job->parallel.microbatches = 16;
  job->parallel.recompute = "none";
  return *job;
}

mesh::Topology FourDevices(int64_t memory_bytes) {
  mesh::Topology topology;
  for (int i = 0; i < 4; ++i) {
    mesh::Device device;
    device.worker = "w";
    device.host = "h";
    device.local_index = i;
    device.profile = mesh::KnownDeviceProfiles().at("a100-80g");
    device.memory_bytes = memory_bytes;
    topology.devices.push_back(std::move(device));
  }
  topology.links.host = {3e-6, 1 / 2.4e11};
  return topology;
}

LayoutCost BestOf(const std::string& schedule, int64_t memory_bytes) {
  ir::JobRequest job = FourStageJob();
  job.parallel.schedule = schedule;
  auto found = FindLayout(job, FourDevices(memory_bytes), {}, kStill);
  EXPECT_TRUE(found.has_value()) << schedule << ": " << found.error();
  return found.has_value() ? found->best.front() : LayoutCost();
}

int64_t NeededBytes(const std::string& schedule) {
  const LayoutCost cost = BestOf(schedule, 0);
  EXPECT_EQ(cost.layout.schedule, schedule);
  int64_t most = 0;
  for (const StageCost& stage : cost.stages) most = std::max(most, stage.memory_bytes());
  return most;
}

// They are not even looked at where there is room.
TEST(OpenChoices, SchedulesThatHoldLittleAreTakenWhereOthersDoNotFit) {
  const int64_t half = NeededBytes("v-half");
  const int64_t min = NeededBytes("v-min");
  EXPECT_LT(min, half);
  for (const char* other : {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"}) {
    EXPECT_LT(half, NeededBytes(other)) << other;
  }
  EXPECT_FALSE(IsForTightMemory(BestOf("auto", 0).layout.schedule));
  EXPECT_EQ(BestOf("auto", half).layout.schedule, "v-half");
  EXPECT_EQ(BestOf("auto", min).layout.schedule, "v-min");
}

TEST(OpenChoices, FoldedSchedulesAreTriedWithFewMicrobatches) {
  const ir::JobRequest job = FourStageJob();
  planner::Layout degrees;
  degrees.pipeline = 4;
  degrees.microbatches = 3;
  const auto members = OpenChoices(job).Members(degrees, {});
  for (const char* schedule :
       {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"}) {
    EXPECT_TRUE(std::any_of(members.begin(), members.end(), [&](const planner::Layout& member) {
      return member.schedule == schedule;
    })) << schedule;
  }
}

}  // namespace
}  // namespace meshwright::search
