// Where the core puts the ranks of a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

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
  scene.cluster.SettleFor(50'000);
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

}  // namespace
}  // namespace meshwright::controller
