// A job goes on after a failure: one promise per test. That steps come once and in order, and that
// what is restored is what is on record, the simulated cluster checks in all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Workers of one device each, and a job on some of them that has done four of its ten steps.
struct Scene {
  SimCluster cluster;
  int64_t job = 0;

  explicit Scene(CoreOptions options = SimCluster::DefaultOptions()) : cluster(options) {}

  // Without snapshots, of which tests/unit/controller/core_snapshots_test.cc is.
  static ir::JobRequest Request(int64_t devices) {
    ir::JobRequest request = SimCluster::MakeJob(devices, 1, 1, 10);
    request.fault_tolerance.snapshot_every = 0;
    return request;
  }
  static ir::JobRequest Saved(int64_t devices, int64_t interval = 2) {
    ir::JobRequest request = Request(devices);
    request.checkpoint.enable = true;
    request.checkpoint.interval = interval;
    return request;
  }
  void Run(int workers, const ir::JobRequest& request) {
    cluster.AddWorkers(workers);
    cluster.hold_from = 4;
    job = cluster.Submit(request);
    cluster.Settle();
    ASSERT_EQ(Info().state, JobState::kRunning);
    ASSERT_EQ(Info().steps_done, 4);
  }
  // What was held back is lost with the run.
  void Lose(const std::string& worker) {
    cluster.hold_from = -1;
    cluster.Kill(worker);
    cluster.Settle();
  }
  // A worker of one device says that the mesh has failed.
  void Fail(const std::string& worker, uint64_t gen, const Status& why) {
    cluster.FeedFrom(worker,
                     proto::MeshError{MeshGeneration(gen),
                                      proto::MakeError(ErrorKind::kStepFailed, why, worker)});
    cluster.Settle();
  }
  proto::JobInfo Info() const { return cluster.Info(job); }
  // The step of its newest checkpoint on disk.
  int64_t Record() const { return cluster.Record(job).checkpoint_step; }
  std::vector<std::string> MembersOfLastMesh() const {
    std::vector<std::string> workers;
    for (const proto::Member& member : cluster.last_load->members) workers.push_back(member.worker);
    return workers;
  }
  int Busy() const {
    int busy = 0;
    for (const auto& worker : cluster.core().Workers(Now{})) busy += worker.busy_devices;
    return busy;
  }
};

void ExpectDone(Scene& scene, int busy = 0) {
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded) << scene.Info().message;
  EXPECT_EQ(scene.Info().steps_done, 10);
  EXPECT_THAT(scene.cluster.steps(scene.job), SizeIs(10));
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("recovered in ")));
  EXPECT_EQ(scene.Busy(), busy);
}

// ---- Where it goes on ---------------------------------------------------------------------------

TEST(CoreRecovery, OnTheSameDevicesByTheSamePlan) {
  Scene scene;
  scene.Run(2, Scene::Request(2));
  const auto members = scene.MembersOfLastMesh();
  scene.Lose("w1");
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_EQ(scene.Info().reason, "NoCapacity");
  EXPECT_THAT(scene.Info().message, HasSubstr("waits for 2 devices"));
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_EQ(scene.MembersOfLastMesh(), members);
  EXPECT_EQ(scene.cluster.last_load->mesh_gen, MeshGeneration(2));
  EXPECT_EQ(scene.cluster.plans, 1);
  EXPECT_THAT(scene.cluster.lines(scene.job),
              Contains(HasSubstr("goes on from the beginning, 4 steps are run again")));
}

TEST(CoreRecovery, WhereNobodyIsLostItGoesOnAtOnce) {
  Scene scene;
  scene.Run(2, Scene::Request(2));
  scene.cluster.hold_from = -1;
  scene.Fail("w1", 1, Internal("ECC"));
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.plans, 1);
}

TEST(CoreRecovery, OnASpareThatTakesTheRankOfTheLost) {
  Scene scene;
  scene.Run(3, Scene::Request(2));
  ASSERT_THAT(scene.MembersOfLastMesh(), ElementsAre("w0", "w1"));
  scene.Lose("w0");
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_THAT(scene.MembersOfLastMesh(), ElementsAre("w2", "w1"));
  EXPECT_EQ(scene.cluster.plans, 1);
}

TEST(CoreRecovery, ByANewPlanWhenNoSpareComesInTime) {
  Scene scene;
  ir::JobRequest request = Scene::Request(2);
  request.fault_tolerance.max_wait_for_spare_s = 5;
  scene.Run(2, request);
  scene.Lose("w1");
  scene.cluster.SettleFor(4800);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering) << "a spare may still come";
  scene.cluster.SettleFor(300);
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.plans, 2);
  EXPECT_EQ(scene.cluster.planned().devices.size(), 1u);
  EXPECT_EQ(scene.Info().layout, "data=1");
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("planning anew")));
}

TEST(CoreRecovery, WithTooFewDevicesOrNoElasticityItWaitsForAsManyAsItHad) {
  for (const bool elastic : {false, true}) {
    Scene scene;
    ir::JobRequest request = Scene::Request(3);
    request.fault_tolerance.max_wait_for_spare_s = 1;
    request.fault_tolerance.min_devices = elastic ? 2 : 1;
    request.fault_tolerance.elastic = elastic ? ir::Elastic::kReplan : ir::Elastic::kOff;
    scene.Run(3, request);
    scene.Lose("w1");
    scene.Lose("w2");
    scene.cluster.hold_from = -1;
    scene.cluster.SettleFor(30'000);
    EXPECT_EQ(scene.Info().state, JobState::kRecovering);
    EXPECT_EQ(scene.Info().reason, "NoCapacity");
    scene.cluster.AddWorker("w1", 1);
    scene.cluster.SettleFor(500);
    EXPECT_EQ(scene.Info().state, elastic ? JobState::kSucceeded : JobState::kRecovering);
    scene.cluster.AddWorker("w2", 1);
    scene.cluster.Settle();
    ExpectDone(scene);
    EXPECT_EQ(scene.cluster.plans, elastic ? 2 : 1);
  }
}

TEST(CoreRecovery, NoPlanForFewerIsNoEndAndIsAskedForAgainWhenTheClusterHasChanged) {
  Scene scene;
  ir::JobRequest request = Scene::Request(3);
  request.fault_tolerance.max_wait_for_spare_s = 1;
  scene.cluster.plans_from = 2;
  scene.Run(3, request);
  scene.Lose("w1");
  scene.Lose("w2");
  scene.cluster.hold_from = -1;
  scene.cluster.SettleFor(10'000);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_EQ(scene.cluster.plans, 2) << "the same cluster, the same answer";
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("no plan for so few")));
  scene.cluster.AddWorker("w2", 1);
  scene.cluster.SettleFor(500);
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.plans, 3);
}

TEST(CoreRecovery, InTheQueueItStillGoesByTheOldPlanWhenItCan) {
  Scene scene;
  ir::JobRequest request = Scene::Request(2);
  request.fault_tolerance.max_wait_for_spare_s = 0;
  scene.Run(3, request);
  const int64_t busy = scene.cluster.Submit(SimCluster::MakeJob(1, 1, 1, 10));
  scene.cluster.Settle();
  scene.cluster.Kill("w0");
  scene.Lose("w1");
  ASSERT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_THAT(scene.Info().message, HasSubstr("0 of 1 are free"));
  const int plans = scene.cluster.plans;
  scene.cluster.AddWorker("w1", 2);
  scene.cluster.Settle();
  ExpectDone(scene, /*busy=*/1);
  EXPECT_EQ(scene.cluster.plans, plans);
  EXPECT_TRUE(scene.cluster.Cancel(busy).ok());
}

TEST(CoreRecovery, AWorkerThatIsLostWhileItIsPlannedAnewGivesItItsPlaceBack) {
  Scene scene;
  ir::JobRequest request = Scene::Request(3);
  request.fault_tolerance.max_wait_for_spare_s = 0;
  scene.Run(3, request);
  scene.cluster.hold_plans = true;
  scene.Lose("w1");
  ASSERT_EQ(scene.cluster.plans, 2);
  ASSERT_EQ(scene.cluster.planned().devices.size(), 2u);
  scene.Lose("w2");
  EXPECT_EQ(scene.cluster.planned().devices.size(), 1u);
  scene.cluster.hold_plans = false;
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_EQ(scene.Info().layout, "data=1");
}

// ---- Failures that come again -------------------------------------------------------------------

TEST(CoreRecovery, AFailureOfTheNextRunIsFollowedByAnother) {
  Scene scene;
  scene.Run(2, Scene::Request(2));
  scene.cluster.fail_next["w0"] =
      proto::MakeError(ErrorKind::kLoadFailed, Internal("no room"), "w0");
  scene.Lose("w1");
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.last_load->mesh_gen, MeshGeneration(3));
  const auto& lines = scene.cluster.lines(scene.job);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.starts_with("recovered"); }),
            1);
}

TEST(CoreRecovery, MoreThanItMayInADayEndsTheJobWithTheLastCause) {
  Scene scene;
  ir::JobRequest request = Scene::Request(1);
  request.fault_tolerance.max_recoveries = 2;
  scene.Run(1, request);
  for (int loss = 0; loss < 3; ++loss) {
    EXPECT_NE(scene.Info().state, JobState::kFailed) << loss;
    scene.Lose("w0");
    scene.cluster.hold_from = 4;
    scene.cluster.AddWorkers(1);
  }
  EXPECT_EQ(scene.Info().state, JobState::kFailed);
  EXPECT_EQ(scene.Info().reason, "WorkerLost");
  EXPECT_THAT(scene.Info().message, HasSubstr("recovered 2 times within a day"));
  EXPECT_EQ(scene.Busy(), 0);
}

TEST(CoreRecovery, AFaultOfItsOwnAtOneStepTwiceEndsTheJob) {
  Scene scene;
  scene.Run(1, Scene::Request(1));
  scene.Fail("w0", 1, Internal("kernel"));
  ASSERT_EQ(scene.Info().state, JobState::kRunning);
  ASSERT_EQ(scene.Info().steps_done, 4) << "as far as before";
  scene.Fail("w0", 2, Internal("kernel"));
  EXPECT_EQ(scene.Info().state, JobState::kFailed);
  EXPECT_THAT(scene.Info().message, HasSubstr("failed twice in the same way after step 4"));
}

TEST(CoreRecovery, AFaultThatItHasPassedIsForgotten) {
  Scene scene;
  scene.Run(1, Scene::Request(1));
  scene.cluster.hold_from = 8;
  scene.Fail("w0", 1, Internal("kernel"));
  ASSERT_EQ(scene.Info().steps_done, 8);
  scene.Lose("w0");
  scene.cluster.hold_from = 4;
  scene.cluster.AddWorkers(1);
  ASSERT_EQ(scene.Info().steps_done, 4);
  scene.cluster.hold_from = -1;
  scene.Fail("w0", 3, Internal("kernel"));
  ExpectDone(scene);
}

TEST(CoreRecovery, WhatFailsBeforeAnyStepIsWhatWasAskedFor) {
  Scene scene;
  scene.cluster.AddWorkers(1);
  scene.cluster.hold_from = 0;
  scene.job = scene.cluster.Submit(Scene::Request(1));
  scene.cluster.Settle();
  scene.Fail("w0", 1, Internal("no such kernel"));
  EXPECT_EQ(scene.Info().state, JobState::kFailed) << "to have filled the state is no work";
}

// ---- While it has no run ------------------------------------------------------------------------

TEST(CoreRecovery, ItIsCancelledInEveryStage) {
  enum Stage { kAborting, kWaits, kPlans, kLoads };
  for (const Stage stage : {kAborting, kWaits, kPlans, kLoads}) {
    SCOPED_TRACE(stage);
    Scene scene;
    ir::JobRequest request = Scene::Request(2);
    request.fault_tolerance.max_wait_for_spare_s = stage == kPlans ? 0 : 60;
    scene.cluster.planned_graph = "digest";
    scene.Run(2, request);
    scene.cluster.hold_plans = true;
    scene.cluster.Kill("w1");
    if (stage == kAborting) {
      while (scene.cluster.core().WorkerCounts().at("LOST") == 0) scene.cluster.DeliverOne();
      ASSERT_EQ(scene.Info().state, JobState::kRunning) << "it has not let go";
    } else {
      scene.cluster.Settle();
      ASSERT_EQ(scene.Info().state, JobState::kRecovering);
    }
    if (stage == kPlans) {
      ASSERT_EQ(scene.cluster.plans, 2);
    }
    if (stage == kLoads) {
      scene.cluster.AddWorker("w1", 1);
      while (scene.cluster.worker("w0").meshes.empty()) ASSERT_TRUE(scene.cluster.DeliverOne());
    }
    EXPECT_TRUE(scene.cluster.Cancel(scene.job).ok());
    scene.cluster.hold_plans = false;
    scene.cluster.hold_from = -1;
    scene.cluster.SettleFor(500);
    EXPECT_EQ(scene.Info().state, JobState::kCancelled) << scene.Info().message;
    EXPECT_EQ(scene.Busy(), 0);
    EXPECT_THAT(scene.cluster.core().BlobsInUse(), IsEmpty());
  }
}

TEST(CoreRecovery, TheBlobsOfTheKeptPlanAreInUse) {
  Scene scene;
  scene.cluster.planned_graph = "digest";
  scene.Run(2, Scene::Request(2));
  scene.Lose("w1");
  ASSERT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_THAT(scene.cluster.core().BlobsInUse(), Contains("digest"));
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_THAT(scene.cluster.core().BlobsInUse(), Not(Contains("digest")));
}

TEST(CoreRecovery, AControllerThatIsRestartedMeanwhileGoesOnFromTheRecord) {
  Scene scene;
  scene.Run(2, Scene::Saved(2, 3));
  ASSERT_EQ(scene.Record(), 3);
  scene.Lose("w1");
  ASSERT_EQ(scene.Info().state, JobState::kRecovering);
  scene.cluster.RestartController();
  EXPECT_EQ(scene.Info().state, JobState::kRecovering) << "it keeps plan and seats";
  scene.cluster.hold_from = -1;
  scene.cluster.AddWorkers(2);
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded) << scene.Info().message;
  EXPECT_THAT(scene.cluster.steps(scene.job), SizeIs(10)) << "each step is told once";
  EXPECT_EQ(scene.cluster.states().restores(), 2);
  EXPECT_EQ(scene.cluster.plans, 1);
}

TEST(CoreRecovery, NobodyElseGetsItsDevicesWhileItWaits) {
  Scene scene;
  scene.Run(2, Scene::Request(2));
  const int64_t queued = scene.cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  scene.Lose("w1");
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_EQ(scene.cluster.Info(queued).reason, "NoCapacity");
  scene.cluster.AddWorker("w2", 1);
  while (scene.Info().state != JobState::kRunning) ASSERT_TRUE(scene.cluster.DeliverOne());
  EXPECT_EQ(scene.cluster.Info(queued).state, JobState::kQueued);
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.Info(queued).state, JobState::kSucceeded);
}

TEST(CoreRecovery, OthersGetDevicesThatItNeverHad) {
  Scene scene;
  scene.Run(3, Scene::Request(3));
  scene.Lose("w1");
  scene.Lose("w2");
  ASSERT_EQ(scene.Info().state, JobState::kRecovering);
  const int64_t other = scene.cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  scene.cluster.Settle();
  EXPECT_EQ(scene.cluster.Info(other).state, JobState::kQueued);
  scene.cluster.AddWorker("new", 1);
  scene.cluster.Settle();
  EXPECT_EQ(scene.cluster.Info(other).state, JobState::kSucceeded);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
}

TEST(CoreRecovery, OneThatWaitsForMoreDevicesThanThereAreBlocksNobody) {
  Scene scene;
  ir::JobRequest request = Scene::Request(4);
  request.fault_tolerance.max_wait_for_spare_s = 0;
  request.fault_tolerance.min_devices = 3;
  scene.Run(4, request);
  scene.cluster.Kill("w1");
  scene.cluster.Kill("w2");
  scene.Lose("w3");
  ASSERT_EQ(scene.Info().state, JobState::kRecovering);
  scene.cluster.AddWorker("new", 1);
  const int64_t other = scene.cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  scene.cluster.Settle();
  EXPECT_EQ(scene.cluster.Info(other).state, JobState::kSucceeded);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
}

TEST(CoreRecovery, AMemberThatDoesNotLetGoIsLeftBehindAndItsDeviceIsNotCountedTwice) {
  Scene scene;
  scene.Run(4, Scene::Request(2));
  scene.cluster.deaf_aborts = true;
  scene.Fail("w1", 1, Internal("ECC"));
  scene.cluster.SettleFor(3500);
  ASSERT_EQ(scene.Info().state, JobState::kRunning);
  EXPECT_THAT(scene.MembersOfLastMesh(), ElementsAre("w2", "w3"));
  EXPECT_EQ(scene.Busy(), 4);
  // Who takes all that is free waits for the two that come back, not for those of the new run.
  scene.cluster.AddWorker("w4", 1);
  const int64_t open = scene.cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
  scene.cluster.Settle();
  EXPECT_THAT(scene.cluster.Info(open).message, HasSubstr("waits for 2 more that job 1 is"));
  scene.cluster.hold_plans = true;
  for (const char* worker : {"w0", "w1"}) {
    scene.cluster.FeedFrom(worker, proto::MeshReleased{MeshGeneration(1)});
  }
  scene.cluster.Settle();
  EXPECT_EQ(scene.cluster.planned().devices.size(), 3u);
  EXPECT_EQ(scene.Info().state, JobState::kRunning);
}

TEST(CoreRecovery, WhatWasAskedOfTheFailedRunFailsAndIsAskedAgain) {
  Scene scene;
  scene.Run(2, Scene::Request(2));
  const uint64_t client = scene.cluster.OpenClient(scene.job);
  ASSERT_TRUE(scene.cluster.opened(client));
  scene.cluster.Ask(client, proto::ReadState{});
  scene.Lose("w1");
  ASSERT_THAT(scene.cluster.failures(client), SizeIs(1));
  EXPECT_EQ(scene.cluster.failures(client)[0].kind, ErrorKind::kWorkerLost);
  scene.cluster.Ask(client, proto::ReadState{});
  ASSERT_THAT(scene.cluster.failures(client), SizeIs(2));
  EXPECT_THAT(scene.cluster.failures(client)[1].message, HasSubstr("does not run"));
  scene.cluster.hold_from = 6;
  scene.cluster.AddWorker("w1", 1);
  while (scene.Info().state != JobState::kRunning) ASSERT_TRUE(scene.cluster.DeliverOne());
  scene.cluster.Ask(client, proto::ReadState{});
  scene.cluster.Settle();
  EXPECT_THAT(scene.cluster.answers(client), SizeIs(1));
  scene.cluster.EndClient(client, ClientEnd::kClosed);
}

// ---- Checkpoints --------------------------------------------------------------------------------

TEST(CoreRecovery, ARunGoesOnFromTheNewestCheckpointOnRecord) {
  Scene scene;
  scene.Run(2, Scene::Saved(2, 4));
  ASSERT_EQ(scene.Record(), 4);
  scene.Lose("w1");
  EXPECT_EQ(scene.Info().steps_done, 4);
  EXPECT_THAT(scene.cluster.lines(scene.job),
              Contains(HasSubstr("goes on from the checkpoint of step 4, 0 steps")));
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.states().restores(), 2);
  EXPECT_EQ(scene.Record(), 10);
}

TEST(CoreRecovery, ASaveThatFailsIsToldAndTheJobGoesOn) {
  Scene scene;
  scene.cluster.fail_write["w1"] =
      proto::MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w1");
  scene.cluster.AddWorkers(2);
  scene.job = scene.cluster.Submit(Scene::Saved(2, 5));
  scene.cluster.Settle();
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded);
  EXPECT_THAT(scene.cluster.lines(scene.job),
              Contains(HasSubstr("the checkpoint of step 5 was not written: disk full")));
  EXPECT_EQ(scene.Record(), 10);
  EXPECT_EQ(scene.cluster.states().commits(), 1);
}

TEST(CoreRecovery, ACommitThatFailsIsNotOnRecord) {
  Scene scene;
  scene.cluster.hold_writes = true;
  scene.Run(1, Scene::Saved(1, 4));
  scene.cluster.hold_writes = false;
  ASSERT_TRUE(scene.cluster.DeliverOne());  // its part is written
  scene.cluster.hold_writes = true;
  scene.cluster.Settle();
  scene.cluster.fail_write["w0"] =
      proto::MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w0");
  scene.cluster.hold_writes = false;
  scene.cluster.Settle();
  EXPECT_EQ(scene.Record(), -1);
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("step 4 was not written")));
}

TEST(CoreRecovery, ASaveThatNeverEndsIsGivenUpAndTheJobEnds) {
  CoreOptions options = SimCluster::DefaultOptions();
  options.save_deadline_ms = 2000;
  Scene scene(options);
  scene.cluster.hold_writes = true;
  scene.cluster.AddWorkers(2);
  scene.job = scene.cluster.Submit(Scene::Saved(2));
  scene.cluster.Settle();
  EXPECT_EQ(scene.Info().steps_done, 10) << "it goes on meanwhile";
  EXPECT_EQ(scene.cluster.core().MessageCounts(JobId(scene.job)).at("SaveState"), 2)
      << "one save at a time";
  scene.cluster.SettleFor(2200);
  EXPECT_THAT(scene.cluster.lines(scene.job),
              Contains(HasSubstr("step 2 was not written: it was not written within 2 s")));
  EXPECT_EQ(scene.Info().state, JobState::kRunning) << "the last one is due";
  scene.cluster.SettleFor(2200);
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded);
  EXPECT_EQ(scene.Record(), -1);
}

TEST(CoreRecovery, ACommitThatNobodyHeardOfCostsNoCheckpointThatIsOnRecord) {
  Scene scene;
  ir::JobRequest request = Scene::Saved(1);
  request.checkpoint.keep_latest_k = 1;
  scene.cluster.AddWorkers(1);
  scene.job = scene.cluster.Submit(request);
  while (scene.Record() != 2) ASSERT_TRUE(scene.cluster.DeliverOne());
  while (scene.cluster.states().commits() < 2) ASSERT_TRUE(scene.cluster.DeliverOne());
  ASSERT_EQ(scene.Record(), 2);
  scene.cluster.Crash("w0");
  scene.cluster.Settle();
  scene.cluster.AddWorkers(1);
  ExpectDone(scene);
}

TEST(CoreRecovery, WhatFailsBehindTheLastStepIsTriedAgainFromItsCheckpoint) {
  Scene scene;
  ir::JobRequest request = Scene::Saved(1, 0);
  request.save_weights = true;
  scene.cluster.AddWorkers(1);
  scene.job = scene.cluster.Submit(request);
  while (scene.Record() != 10) ASSERT_TRUE(scene.cluster.DeliverOne());
  scene.Lose("w0");
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  scene.cluster.AddWorkers(1);
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.states().restores(), 1);
}

TEST(CoreRecovery, ASaveByTimeThatLastsLongerThanItsIntervalIsNotBegunForEver) {
  Scene scene;
  ir::JobRequest request = Scene::Saved(1, 0);
  request.checkpoint.interval_s = 1;
  scene.cluster.hold_writes = true;
  scene.cluster.AddWorkers(1);
  scene.job = scene.cluster.Submit(request);
  scene.cluster.SettleFor(3000);
  ASSERT_EQ(scene.Info().steps_done, 10);
  ASSERT_EQ(scene.Info().state, JobState::kRunning) << "it is being saved";
  // Its part is written, and then the commit.
  for (int writes = 0; writes < 2; ++writes) {
    scene.cluster.hold_writes = false;
    ASSERT_TRUE(scene.cluster.DeliverOne());
    scene.cluster.hold_writes = true;
    scene.cluster.SettleFor(3000);
  }
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded);
  EXPECT_EQ(scene.cluster.states().commits(), 1);
}

}  // namespace
}  // namespace meshwright::controller
