// The control core in a simulated cluster: one promise per test.
#include "controller/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using ::testing::HasSubstr;

TEST(Core, RunsAJobToItsEndAndFreesTheDevices) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 5));
  cluster.Settle();
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_EQ(info.state, JobState::kSucceeded) << info.message;
  EXPECT_EQ(info.steps_done, 5);
  EXPECT_EQ(cluster.steps(job).size(), 5u);
  EXPECT_TRUE(std::isnan(cluster.steps(job)[4].validation_loss));
  for (const auto& worker : cluster.core().Workers(Now{})) EXPECT_EQ(worker.busy_devices, 0);
}

TEST(Core, AStepCostsTwoMessagesPerWorkerAndKStepsShareThem) {
  for (const int64_t steps_per_launch : {1, 4}) {
    SimCluster cluster;
    cluster.AddWorkers(2);
    ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 40);
    request.train.steps_per_launch = steps_per_launch;
    request.fault_tolerance.snapshot_every = 0;
    const int64_t job = cluster.Submit(request);
    cluster.Settle();
    ASSERT_EQ(cluster.Info(job).state, JobState::kSucceeded);
    auto counts = cluster.core().MessageCounts(JobId(job));
    const int64_t workers = 2;
    const int64_t launches = 40 / steps_per_launch + 1;  // and one for init
    EXPECT_EQ(counts["Launch"], launches * workers);
    EXPECT_EQ(counts["LaunchDone"], launches * workers);
    // Outside the steps: load, connect, release, each asked and answered once per worker.
    int64_t rest = 0;
    for (const auto& [kind, count] : counts) {
      if (kind != "Launch" && kind != "LaunchDone") rest += count;
    }
    EXPECT_EQ(rest, 6 * workers);
  }
}

TEST(Core, ValidatesEveryFewStepsAndAtTheEnd) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 10);
  request.train.validate_every = 4;
  request.train.validation_batches = 3;
  request.train.steps_per_launch = 3;
  const int64_t job = cluster.Submit(request);
  cluster.Settle();
  ASSERT_EQ(cluster.Info(job).state, JobState::kSucceeded);
  std::vector<int64_t> validated;
  for (const auto& step : cluster.steps(job)) {
    if (std::isnan(step.validation_loss)) continue;
    validated.push_back(step.step);
    EXPECT_DOUBLE_EQ(step.validation_loss, 3.0);
  }
  EXPECT_EQ(validated, (std::vector<int64_t>{3, 7, 9}));
  EXPECT_EQ(cluster.steps(job).size(), 10u);
}

TEST(Core, SavesWeightsBeforeTheJobSucceeds) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 2);
  request.save_weights = true;
  const int64_t job = cluster.Submit(request);
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
  // Only the worker that owns a tile is asked.
  EXPECT_EQ(cluster.core().MessageCounts(JobId(job)).at("SaveWeights"), 1);
}

TEST(Core, FailsTheJobWhenTheWeightsCannotBeWritten) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.weights_error = ResourceExhausted("/state/jobs/1/model.safetensors: disk full");
  ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 2);
  request.save_weights = true;
  const int64_t job = cluster.Submit(request);
  cluster.Settle();
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_EQ(info.state, JobState::kFailed);
  EXPECT_EQ(info.reason, "SaveFailed");
  EXPECT_THAT(info.message, HasSubstr("model.safetensors: disk full"));
  EXPECT_THAT(info.message, HasSubstr("failed twice in the same way after step 2"));
}

TEST(Core, QueuesInOrderAndSaysWhy) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_reports = true;
  const int64_t first = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  const int64_t second = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  const int64_t third = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(first).state, JobState::kRunning);
  EXPECT_EQ(cluster.Info(second).reason, "NoCapacity");
  EXPECT_THAT(cluster.Info(second).message, HasSubstr("needs 2 devices; 0 of 2 are free"));
  EXPECT_EQ(cluster.Info(third).reason, "QueuedBehind");
  cluster.hold_reports = false;
  EXPECT_TRUE(cluster.Cancel(first).ok());
  cluster.Settle();
  EXPECT_EQ(cluster.Info(first).state, JobState::kCancelled);
  EXPECT_EQ(cluster.Info(second).state, JobState::kSucceeded);
  EXPECT_EQ(cluster.Info(third).state, JobState::kSucceeded);
}

TEST(Core, FailsAJobThatCanNeverFitAndSaysWhatWould) {
  SimCluster cluster;
  cluster.AddWorkers(4);
  const int64_t job = cluster.Submit(SimCluster::MakeJob(4, 2, 1, 3));
  cluster.SettleFor(1000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kQueued) << "workers may still be joining";
  cluster.SettleFor(6000);
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_EQ(info.state, JobState::kFailed);
  EXPECT_EQ(info.reason, "Infeasible");
  EXPECT_THAT(info.message, HasSubstr("needs 8 devices, the cluster has 4"));
  EXPECT_THAT(info.message, HasSubstr("(pinned by parallelism.tensor_parallel_degree = 2, "
                                      "parallelism.data_parallel_replicate_degree = 4)"));
  EXPECT_THAT(info.message, HasSubstr("data <= 2"));
}

TEST(Core, WaitsForWorkersWhenThereAreNone) {
  SimCluster cluster;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.SettleFor(60'000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kQueued);
  EXPECT_EQ(cluster.Info(job).reason, "NoWorkers");
  cluster.AddWorkers(1);
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
}

TEST(Core, AutoDataTakesWhatIsFreeAndReturnsWhatThePlanLeaves) {
  SimCluster cluster;
  cluster.AddWorkers(4);
  cluster.planned_devices = 2;
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  int busy = 0;
  for (const auto& worker : cluster.core().Workers(Now{})) busy += worker.busy_devices;
  EXPECT_EQ(busy, 2);
}

TEST(Core, ReportsThePlannersRefusal) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.plan_error = InvalidArgument("tensor=3 does not divide 4 heads; use 1, 2, 4");
  cluster.plan_misfit = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "Infeasible");
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("use 1, 2, 4"));
}

TEST(Core, ABrokenPlannerIsNotTheUsersMisfit) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.plan_error = ResourceExhausted("no space left on device");
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).reason, "PlanFailed");
}

// ---- Failures -----------------------------------------------------------------------------------

TEST(CoreFailure, ALostWorkerFailsTheJobWithItsNameAndFreesTheRest) {
  SimCluster cluster;
  cluster.AddWorkers(3);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(3, 1, 1, 100)));
  const int64_t next = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 2));
  cluster.Settle();
  ASSERT_EQ(cluster.Info(job).state, JobState::kRunning);
  cluster.hold_reports = false;
  cluster.Kill("w1");
  cluster.Settle();
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_EQ(info.state, JobState::kFailed);
  EXPECT_EQ(info.reason, "WorkerLost");
  EXPECT_THAT(info.message, HasSubstr("worker 'w1'"));
  EXPECT_EQ(cluster.Info(next).state, JobState::kSucceeded) << "the queue goes on";
}

TEST(CoreFailure, TheLostWorkerBeatsTheVictimThatReportedFirst) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 100)));
  cluster.Settle();
  cluster.FeedFrom("w0", proto::LaunchDone{MeshGeneration(1),
                                           LaunchSeq(1),
                                           proto::MakeError(ErrorKind::kStepFailed,
                                                            Unavailable("rank 1 closed"), "w0"),
                                           {}});
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning) << "the cause is not settled yet";
  cluster.Kill("w1");
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "WorkerLost");
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("'w1'"));
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("1 other errors"));
}

TEST(CoreFailure, AVictimIsTheCauseWhenNothingBetterComes) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.fail_next["w0"] =
      proto::MakeError(ErrorKind::kConnectFailed, Unavailable("no route to w1"), "w0");
  const int64_t job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  cluster.SettleFor(1000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("no route to w1"));
}

TEST(CoreFailure, AnErrorOfItsOwnEndsTheJobAtOnce) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.fail_next["w1"] =
      proto::MakeError(ErrorKind::kLoadFailed, ResourceExhausted("needs 3 GiB, 1 GiB free"), "w1");
  const int64_t job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "LoadFailed");
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("needs 3 GiB"));
}

TEST(CoreFailure, ASilentWorkerIsSuspectThenLost) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 100)));
  cluster.SettleFor(1000);
  cluster.Silence("w0");
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.core().WorkerCounts().at("SUSPECT"), 1);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.core().WorkerCounts().at("LOST"), 1);
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("no sign of life"));
}

TEST(CoreFailure, AStallOfTheControllerIsNotTheWorkersSilence) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.SettleFor(2000);
  cluster.Stall(20'000);
  EXPECT_EQ(cluster.core().WorkerCounts().at("LOST"), 0);
  cluster.SettleFor(2000);
  EXPECT_EQ(cluster.core().WorkerCounts().at("READY"), 2);
}

TEST(CoreFailure, AStoppedWorkerFailsItsJobAndLeaves) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 100)));
  cluster.Settle();
  cluster.Leave("w1");
  cluster.Settle();
  cluster.Kill("w1");
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "WorkerStopped");
  EXPECT_EQ(cluster.core().WorkerCounts().at("LEFT"), 1);
}

TEST(CoreFailure, ALossWhilePlanningPlansAgain) {
  SimCluster cluster;
  cluster.AddWorkers(3);
  cluster.hold_plans = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kPlanning);
  cluster.Kill("w0");
  while (cluster.DeliverOne()) {
  }
  EXPECT_EQ(cluster.Info(job).state, JobState::kPlanning) << "on the devices that are left";
  cluster.hold_plans = false;
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
}

TEST(CoreFailure, DevicesStayHeldUntilTheWorkerLetsGo) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  cluster.deaf_aborts = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_TRUE(cluster.Cancel(job).ok());
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kCancelled) << "within the abort deadline";
  EXPECT_EQ(cluster.core().Workers(Now{})[0].busy_devices, 1);
  cluster.FeedFrom("w0", proto::MeshReleased{MeshGeneration(1)});
  EXPECT_EQ(cluster.core().Workers(Now{})[0].busy_devices, 0);
}

TEST(CoreFailure, ALossThatIsNoNumberEndsTheJobAtThatStep) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.diverges_at = 3;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 9));
  cluster.Settle();
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_EQ(info.state, JobState::kFailed);
  EXPECT_EQ(info.reason, "Diverged");
  EXPECT_THAT(info.message, HasSubstr("nan at step 4"));
  EXPECT_EQ(cluster.steps(job).size(), 4u);
  EXPECT_EQ(cluster.core().Workers(Now{})[0].busy_devices, 0);
}

TEST(CoreFailure, AWrongNumberOfReportsIsAProtocolError) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  cluster.FeedFrom("w0", proto::LaunchDone{MeshGeneration(1), LaunchSeq(1), {}, {}});
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).reason, "ProtocolError");
}

// ---- Cancel ----

TEST(CoreCancel, WorksInEveryState) {
  for (const JobState at : {JobState::kQueued, JobState::kPlanning, JobState::kRunning}) {
    SimCluster cluster;
    if (at != JobState::kQueued) cluster.AddWorkers(1);
    cluster.hold_plans = at == JobState::kPlanning;
    cluster.hold_reports = true;
    const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
    cluster.Settle();
    ASSERT_EQ(cluster.Info(job).state, at);
    EXPECT_TRUE(cluster.Cancel(job).ok());
    cluster.hold_plans = false;
    cluster.Settle();
    EXPECT_EQ(cluster.Info(job).state, JobState::kCancelled);
    EXPECT_TRUE(cluster.Cancel(job).ok()) << "idempotent";
    for (const auto& worker : cluster.core().Workers(Now{})) EXPECT_EQ(worker.busy_devices, 0);
  }
}

TEST(CoreCancel, RefusesAnEndedOrUnknownJob) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1));
  cluster.Settle();
  EXPECT_EQ(cluster.Cancel(job).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.Cancel(99).code(), StatusCode::kNotFound);
}

// ---- Identities ----

TEST(CoreIdentity, TheSameOpIdGetsTheSameJob) {
  SimCluster cluster;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1), "op");
  EXPECT_EQ(cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1), "op"), job);
  cluster.RestartController();
  EXPECT_EQ(cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1), "op"), job);
}

TEST(CoreIdentity, MessagesOfAnOldGenerationAreDropped) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  const int64_t first = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1));
  cluster.Settle();
  cluster.hold_reports = true;
  const int64_t second = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 5));
  cluster.Settle();
  const int64_t stale = cluster.core().stale_messages();
  cluster.FeedFrom(
      "w0", proto::LaunchDone{MeshGeneration(1),
                              LaunchSeq(1),
                              proto::MakeError(ErrorKind::kStepFailed, Internal("late"), "w0"),
                              {}});
  EXPECT_EQ(cluster.core().stale_messages(), stale + 1);
  EXPECT_EQ(cluster.Info(first).state, JobState::kSucceeded);
  EXPECT_EQ(cluster.Info(second).state, JobState::kRunning);
}

TEST(CoreIdentity, AMessageOfAnotherTermEndsTheSession) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  const SessionId session = cluster.worker("w0").session;
  cluster.Feed(WorkerMessage{session, proto::UpMessage{Term(999), proto::Heartbeat{}}});
  EXPECT_EQ(cluster.core().WorkerCounts().at("LOST"), 1);
  EXPECT_EQ(cluster.refused().at("w0").code(), StatusCode::kFailedPrecondition);
}

TEST(CoreIdentity, ASecondProcessOfTheSameNameIsRefusedWhileTheFirstLives) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  proto::Register twin;
  twin.name = "w0";
  twin.incarnation = Incarnation(4242);
  twin.devices = 1;
  const Status refusal = cluster.Refusal(twin);
  EXPECT_EQ(refusal.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(refusal.message(), HasSubstr("choose another --name"));
}

TEST(CoreProfiles, PlansSeeWhatWorkersMeasured) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  mesh::DeviceProfile profile = *mesh::DefaultDeviceProfile();
  profile.name = "measured";
  profile.links.host = {3e-6, 2e-11};
  cluster.SetProfile("w1", mesh::FormatDeviceProfile(profile));
  cluster.Reconnect("w1");
  cluster.Settle();
  cluster.Submit(SimCluster::MakeJob(2, 1, 1, 1));
  cluster.Settle();
  const mesh::Topology& topology = cluster.planned();
  ASSERT_EQ(topology.devices.size(), 2u);
  EXPECT_EQ(topology.devices[0].profile, nullptr) << "it measured nothing";
  EXPECT_EQ(topology.ProfileOf(0).name, "cpu");
  EXPECT_EQ(topology.ProfileOf(1), profile);
  EXPECT_EQ(topology.devices[1].threads, 2);
  EXPECT_EQ(topology.hosts.at("host-a").cores, 8);
  EXPECT_EQ(topology.hosts.at("host-a").links, profile.links);
  EXPECT_EQ(cluster.core().Workers(Now{})[1].device_profile, mesh::FormatDeviceProfile(profile));
}

TEST(CoreProfiles, WorkersOnDifferentCoresDoNotShareThem) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.SetCpus("w0", {0, 1});
  cluster.Reconnect("w0");
  cluster.Settle();
  EXPECT_EQ(cluster.core().Workers(Now{})[0].host_cores, 8) << "w1 does not say which";
  cluster.SetCpus("w1", {1, 2});
  cluster.Reconnect("w1");
  cluster.Settle();
  EXPECT_EQ(cluster.core().Workers(Now{})[0].host_cores, 3);
  cluster.Submit(SimCluster::MakeJob(2, 1, 1, 1));
  cluster.Settle();
  EXPECT_EQ(cluster.planned().hosts.at("host-a").cores, 3);
}

TEST(CoreProfiles, AProfileThatCannotBeReadIsRefused) {
  SimCluster cluster;
  proto::Register info;
  info.name = "w0";
  info.devices = 1;
  info.device_profile = "launch_s x\n";
  EXPECT_THAT(cluster.Refusal(info).message(), HasSubstr("line 1: launch_s is 'x'"));
  info.device_profile.assign(17 << 10, '#');
  EXPECT_THAT(cluster.Refusal(info).message(), HasSubstr("at most 16384 are allowed"));
  info.device_profile.clear();
  info.cpus.assign(5000, 1);
  EXPECT_THAT(cluster.Refusal(info).message(), HasSubstr("5000 cores; at most 4096"));
}

TEST(CoreIdentity, ARestartedWorkerReplacesItsDeadSelf) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.Kill("w0");
  cluster.Settle();
  cluster.AddWorker("w0", 2);
  cluster.Settle();
  const int64_t job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 1));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
}

TEST(CoreIdentity, ARejoiningSessionLosesItsOldMesh) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(1, 1, 1, 5)));
  cluster.Settle();
  cluster.Reconnect("w0");
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "WorkerLost");
  EXPECT_EQ(cluster.core().WorkerCounts().at("READY"), 1);
}

// ---- Durability ----

TEST(CoreRestart, RunningJobsThatMayNotRecoverFailQueuedJobsGoOn) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  const int64_t done = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1));
  cluster.Settle();
  cluster.hold_reports = true;
  const int64_t running = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(1, 1, 1, 5)));
  const int64_t queued = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 5));
  cluster.Settle();
  cluster.hold_reports = false;
  cluster.RestartController();
  EXPECT_EQ(cluster.Info(done).state, JobState::kSucceeded);
  EXPECT_EQ(cluster.Info(running).state, JobState::kRunning) << "its worker may hold it";
  EXPECT_EQ(cluster.Info(queued).state, JobState::kQueued);
  cluster.Reconnect("w0");
  cluster.Settle();
  EXPECT_EQ(cluster.Info(running).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(running).reason, "ControllerRestarted");
  EXPECT_THAT(cluster.Info(running).message, HasSubstr("came back without mesh"));
  EXPECT_EQ(cluster.Info(queued).state, JobState::kSucceeded);
}

TEST(CoreRestart, ShutdownEndsJobsThatNobodyCanTakeUpAndKeepsTheQueue) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  const int64_t running = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(1, 1, 1, 5)));
  const int64_t queued = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 5));
  cluster.Settle();
  cluster.Feed(Shutdown{});
  EXPECT_EQ(cluster.Info(running).reason, "ControllerStopped");
  cluster.RestartController();
  EXPECT_EQ(cluster.Info(running).reason, "ControllerStopped");
  EXPECT_EQ(cluster.Info(queued).state, JobState::kQueued);
}

TEST(CoreStore, ASubmitThatCannotBeWrittenIsRefused) {
  SimCluster cluster;
  FailWrites(cluster.disk(), 1, ResourceExhausted("disk full"));
  EXPECT_EQ(cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1), "op"), 0);
  EXPECT_TRUE(cluster.core().Jobs().empty());
  EXPECT_GT(cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1), "op"), 0) << "and may be tried again";
}

TEST(CoreStore, WhatThePlannerNotesIsInTheLogOfTheJob) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.plan_notes = {"norms are computed again"};
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1));
  cluster.Settle();
  EXPECT_THAT(cluster.lines(job), ::testing::Contains("note: norms are computed again"));
}

TEST(CoreStore, AnEndThatCannotBeWrittenIsToldAllTheSameAndOnlyOnce) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(WithoutRecovery(SimCluster::MakeJob(1, 1, 1, 1)));
  cluster.Settle();
  FailWrites(cluster.disk(), 3, ResourceExhausted("disk full"));
  cluster.Kill("w0");
  cluster.SettleFor(5000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  const auto told = std::count_if(
      cluster.lines(job).begin(), cluster.lines(job).end(),
      [](const std::string& line) { return line.find("FAILED") != std::string::npos; });
  EXPECT_EQ(told, 1);
  cluster.RestartController();
  EXPECT_EQ(cluster.Info(job).reason, "WorkerLost") << "written once the disk has room";
}

TEST(CoreStore, AGenerationThatCannotBeWrittenIsNeverTold) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_plans = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1));
  cluster.Settle();
  FailWrites(cluster.disk(), 1, ResourceExhausted("disk full"));
  cluster.hold_plans = false;
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "StoreFailed");
  EXPECT_TRUE(cluster.worker("w0").meshes.empty());
  EXPECT_EQ(cluster.core().Workers(Now{})[0].busy_devices, 0);
}

}  // namespace
}  // namespace meshwright::controller
