// Where the core puts the ranks of a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::HasSubstr;

TEST(CorePlacement, RanksAreWhereThePlanPlacesThem) {
  SimCluster cluster;
  cluster.AddWorkers(4);
  cluster.planned_devices = 2;
  cluster.planned_placement = {3, 1};
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  std::vector<int> busy;
  for (const auto& worker : cluster.core().Workers(Now{})) busy.push_back(worker.busy_devices);
  EXPECT_EQ(busy, (std::vector<int>{0, 1, 0, 1}));
}

TEST(CorePlacement, APlacementOnDevicesThatWereNotReservedFails) {
  for (const std::vector<int>& placement : {std::vector<int>{0, 0}, {0, 4}, {-1, 0}, {0}}) {
    SimCluster cluster;
    cluster.AddWorkers(4);
    cluster.planned_devices = 2;
    cluster.planned_placement = placement;
    const int64_t job = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
    cluster.Settle();
    EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
    EXPECT_THAT(cluster.Info(job).message, HasSubstr("not reserved"));
  }
}

// Two CPU devices and one GPU.
struct MixedCluster {
  SimCluster cluster;
  MixedCluster() {
    cluster.AddWorkers(3);
    cluster.SetKind("w1", "cuda");
    cluster.Reconnect("w1");
    cluster.Settle();
    cluster.hold_reports = true;
  }
  std::vector<int> BusyAfter(const ir::JobRequest& job) {
    cluster.Submit(job);
    cluster.Settle();
    return Busy();
  }
  std::vector<int> Busy() {
    std::vector<int> busy;
    for (const auto& worker : cluster.core().Workers(Now{})) busy.push_back(worker.busy_devices);
    return busy;
  }
};

TEST(CorePlacement, AMeshIsOfOneKindAndGpusGoFirst) {
  MixedCluster mixed;
  EXPECT_EQ(mixed.cluster.core().Workers(Now{})[1].device_kind, "cuda");
  EXPECT_EQ(mixed.cluster.core().Workers(Now{})[0].device_kind, "cpu");
  EXPECT_EQ(mixed.BusyAfter(SimCluster::MakeJob(1, 1, 1, 3)), (std::vector<int>{0, 1, 0}));
}

TEST(CorePlacement, WhereThereAreTooFewGpusForLongCpusAreUsed) {
  MixedCluster mixed;
  EXPECT_EQ(mixed.BusyAfter(SimCluster::MakeJob(2, 1, 1, 3)), (std::vector<int>{0, 0, 0}))
      << "others may join";
  mixed.cluster.SettleFor(11'000);
  EXPECT_EQ(mixed.Busy(), (std::vector<int>{1, 0, 1}));
}

TEST(CorePlacement, AJobMaySayItsKind) {
  MixedCluster mixed;
  ir::JobRequest job = SimCluster::MakeJob(1, 1, 1, 3);
  job.parallel.device = "cpu";
  EXPECT_EQ(mixed.BusyAfter(job), (std::vector<int>{1, 0, 0}));
  job.parallel.device = "cuda";
  EXPECT_EQ(mixed.BusyAfter(job), (std::vector<int>{1, 1, 0}));
  EXPECT_EQ(mixed.BusyAfter(job), (std::vector<int>{1, 1, 0})) << "waits, though a CPU is free";
}

TEST(CorePlacement, WhatAJobAllowsIsToldToItsWorkers) {
  for (const bool allowed : {false, true}) {
    SimCluster cluster;
    cluster.AddWorkers(1);
    ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 3);
    request.train.tf32 = allowed;
    cluster.Submit(request);
    cluster.Settle();
    ASSERT_TRUE(cluster.last_load.has_value());
    EXPECT_EQ(cluster.last_load->tf32, allowed);
  }
}

TEST(CorePlacement, AJobForGpusWaitsForTheFirstOne) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 3);
  request.parallel.device = "cuda";
  const int64_t job = cluster.Submit(request);
  cluster.SettleFor(20'000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.Info(job).message,
              HasSubstr("kind cuda (parallelism.device is \"cuda\"): the cluster has only cpu"));
}

TEST(CorePlacement, WhatGpusDoNotComputeWaitsForACpu) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.SetKind("w0", "cuda");
  cluster.Reconnect("w0");
  cluster.Settle();
  ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 3);
  ir::Builder builder("loss");
  builder.AddOne(ir::Op::kInput, {}, {{"name", "x"}}, {{ir::DType::kF64, {2}}});
  request.SetLoss(*builder.Finish());
  const int64_t job = cluster.Submit(request);
  cluster.SettleFor(20'000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.Info(job).message,
              HasSubstr("kind cpu (GPUs do not compute in f64): the cluster has only cuda"));
}

TEST(CorePlacement, WhatGpusDoNotComputeGoesToCpus) {
  MixedCluster mixed;
  ir::JobRequest job = SimCluster::MakeJob(1, 1, 1, 3);
  ir::Builder builder("loss");
  builder.AddOne(ir::Op::kInput, {}, {{"name", "x"}}, {{ir::DType::kF64, {2}}});
  job.SetLoss(*builder.Finish());
  EXPECT_EQ(mixed.BusyAfter(job), (std::vector<int>{1, 0, 0}));
}

TEST(CorePlacement, ABusyGpuIsWaitedFor) {
  MixedCluster mixed;
  mixed.BusyAfter(SimCluster::MakeJob(1, 1, 1, 3));
  EXPECT_EQ(mixed.BusyAfter(SimCluster::MakeJob(1, 1, 1, 3)), (std::vector<int>{0, 1, 0}));
}

TEST(CorePlacement, AKindThatIsNotKnownIsRefused) {
  SimCluster cluster;
  proto::Register info;
  info.name = "w0";
  info.devices = 1;
  info.device_kind = "abacus";
  EXPECT_THAT(cluster.Refusal(info).message(), HasSubstr("of the kind 'abacus'; known are cpu"));
}

TEST(CorePlacement, AnInvitationThatIsTooLargeEndsTheJob) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.invitation_bytes = 65 << 10;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("an invitation of 66560 bytes"));
}

// Two workers; the first job's only worker does not answer AbortMesh, its devices are not free yet.
struct LettingGo {
  SimCluster cluster;
  int64_t first = 0;

  LettingGo() {
    cluster.AddWorkers(2);
    cluster.hold_reports = true;
    cluster.deaf_aborts = true;
    first = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
    cluster.Settle();
    EXPECT_TRUE(cluster.Cancel(first).ok());
    cluster.Settle();
    cluster.hold_reports = false;
  }

  int64_t SubmitOpen() {
    const int64_t job = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
    cluster.Settle();
    return job;
  }
  void ExpectWaits(int64_t job) {
    EXPECT_EQ(cluster.Info(job).state, JobState::kQueued);
    EXPECT_THAT(cluster.Info(job).message, HasSubstr("waits for 1 more that job 1 is letting go"));
  }
  void ExpectSucceeded(int64_t job, const char* layout) {
    EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded) << cluster.Info(job).message;
    EXPECT_THAT(cluster.Info(job).layout, HasSubstr(layout));
  }
  void LetGo() {
    cluster.FeedFrom("w0", proto::MeshReleased{MeshGeneration(1)});
    cluster.Settle();
  }
};

// Else a job that follows another is planned for what happens to be free at that moment.
TEST(CorePlacement, AJobThatTakesEveryDeviceWaitsForThoseThatAreLetGo) {
  LettingGo scene;
  const int64_t open = scene.SubmitOpen();
  scene.ExpectWaits(open);  // the mesh is being aborted
  scene.cluster.SettleFor(4000);
  EXPECT_EQ(scene.cluster.Info(scene.first).state, JobState::kCancelled);
  scene.ExpectWaits(open);  // the job has ended
  scene.LetGo();
  scene.ExpectSucceeded(open, "data=2");
}

TEST(CorePlacement, AJobOfOneDeviceDoesNotWaitForThoseThatAreLetGo) {
  LettingGo scene;
  const int64_t one = scene.cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  scene.cluster.Settle();
  scene.ExpectSucceeded(one, "data=1");
}

TEST(CorePlacement, ASilentWorkersDevicesAreWaitedForUntilItIsLost) {
  LettingGo scene;
  scene.cluster.Silence("w0");
  scene.cluster.SettleFor(4000);
  const auto workers = scene.cluster.core().Workers(Now{});
  EXPECT_EQ(workers[0].state, "SUSPECT");
  const int64_t open = scene.SubmitOpen();
  scene.ExpectWaits(open);
  scene.cluster.SettleFor(4000);  // it is lost by then
  scene.ExpectSucceeded(open, "data=1");
}

TEST(CorePlacement, WhatIsNeverLetGoIsWaitedForUntilTheDeadline) {
  LettingGo scene;
  const int64_t open = scene.SubmitOpen();
  scene.cluster.SettleFor(110'000);
  scene.ExpectWaits(open);
  scene.cluster.SettleFor(20'000);
  scene.ExpectSucceeded(open, "data=1");
}

TEST(CorePlacement, AJobThatWaitsForReturningDevicesMayBeCancelled) {
  LettingGo scene;
  const int64_t cancelled = scene.SubmitOpen();
  const int64_t next = scene.SubmitOpen();
  EXPECT_TRUE(scene.cluster.Cancel(cancelled).ok());
  scene.cluster.Settle();
  EXPECT_EQ(scene.cluster.Info(cancelled).state, JobState::kCancelled);
  scene.ExpectWaits(next);
  scene.LetGo();
  scene.ExpectSucceeded(next, "data=2");
}

TEST(CorePlacement, DevicesThatAreLetGoUnaskedAreFreeWhenTheJobHasFailed) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_reports = true;
  cluster.deaf_aborts = true;
  const int64_t first = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  cluster.Settle();
  cluster.FeedFrom("w0", proto::MeshReleased{MeshGeneration(1)});
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.Info(first).state, JobState::kFailed);
  EXPECT_THAT(cluster.Info(first).message, HasSubstr("dropped mesh generation 1 unasked"));
  cluster.FeedFrom("w1", proto::MeshReleased{MeshGeneration(1)});
  cluster.hold_reports = false;
  const int64_t next = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(next).state, JobState::kSucceeded) << cluster.Info(next).message;
}

// A request that no check has seen, from the store of an older controller.
TEST(CorePlacement, DegreesWhoseProductOverflowsAreInfeasible) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  std::vector<int64_t> jobs;
  const auto submit = [&](auto set) {
    ir::JobRequest job = SimCluster::MakeJob(0, 0, 0, 2);
    set(job.parallel);
    jobs.push_back(cluster.Submit(job));
  };
  submit([](ir::ParallelSpec& p) {
    p.tensor_axes = "65536x65536x65536";
    p.pipeline = 65536;
  });
  submit([](ir::ParallelSpec& p) { p.data = p.tensor = p.pipeline = int64_t{1} << 32; });
  submit([](ir::ParallelSpec& p) { p.tensor = p.pipeline = INT64_MAX; });
  submit([](ir::ParallelSpec& p) {
    for (int stage = 0; stage < 1000; ++stage) p.stage_meshes += "65536x65536,";
    p.stage_meshes.pop_back();
  });
  const int64_t negative = cluster.Submit(SimCluster::MakeJob(-1, -1, -1, 2));
  cluster.SettleFor(20'000);
  for (const int64_t job : jobs) {
    EXPECT_EQ(cluster.Info(job).state, JobState::kFailed) << job;
    EXPECT_THAT(cluster.Info(job).message, HasSubstr("the cluster has 2")) << job;
  }
  EXPECT_TRUE(proto::IsTerminal(cluster.Info(negative).state));
}

}  // namespace
}  // namespace meshwright::controller
