// Workers that are slow, silent, deaf or hostile, and what that does to the queue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "controller/launches.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::HasSubstr;

TEST(CoreMembership, ASuspectWorkerDoesNotMakeAJobInfeasible) {
  SimCluster cluster;
  cluster.AddWorkers(3);
  cluster.hold_reports = true;
  const int64_t running = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  const int64_t queued = cluster.Submit(SimCluster::MakeJob(3, 1, 1, 3));
  cluster.SettleFor(10'000);
  ASSERT_EQ(cluster.Info(running).state, JobState::kRunning);
  cluster.Silence("w2");
  cluster.SettleFor(4000);
  ASSERT_EQ(cluster.core().WorkerCounts().at("SUSPECT"), 1);
  EXPECT_EQ(cluster.Info(queued).state, JobState::kQueued) << cluster.Info(queued).message;
  EXPECT_EQ(cluster.Info(queued).reason, "NoCapacity");
  cluster.FeedFrom("w2", proto::Heartbeat{});
  EXPECT_EQ(cluster.core().WorkerCounts().at("READY"), 3);
  cluster.hold_reports = false;
  EXPECT_TRUE(cluster.Cancel(running).ok());
  cluster.Settle();
  EXPECT_EQ(cluster.Info(queued).state, JobState::kStarting) << "it waits for the silent one only";
}

TEST(CoreMembership, ASecondProcessOfTheNameOfASilentOneIsRefusedUntilThatOneIsLost) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  proto::Register twin;
  twin.name = "w0";
  twin.incarnation = Incarnation(4242);
  twin.devices = 1;
  cluster.Silence("w0");
  cluster.SettleFor(4000);
  ASSERT_EQ(cluster.core().WorkerCounts().at("SUSPECT"), 1);
  EXPECT_EQ(cluster.Refusal(twin).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning) << "its job has not lost it";
  cluster.SettleFor(4000);
  ASSERT_EQ(cluster.core().WorkerCounts().at("LOST"), 1);
  EXPECT_TRUE(cluster.Refusal(twin).ok());
}

TEST(CoreMembership, JobsThatPlanAgainKeepTheirOrder) {
  SimCluster cluster;
  cluster.AddWorkers(1, 3);
  cluster.hold_plans = true;
  std::vector<int64_t> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2)));
  cluster.Settle();
  for (const int64_t job : jobs) ASSERT_EQ(cluster.Info(job).state, JobState::kPlanning);
  const int64_t later = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2));
  cluster.Kill("w0");
  while (cluster.DeliverOne()) {
  }
  EXPECT_EQ(cluster.Info(jobs[0]).reason, "NoWorkers");
  EXPECT_THAT(cluster.Info(jobs[1]).message, HasSubstr("(1 ahead)"));
  EXPECT_THAT(cluster.Info(jobs[2]).message, HasSubstr("(2 ahead)"));
  EXPECT_THAT(cluster.Info(later).message, HasSubstr("(3 ahead)"));
}

TEST(CoreMembership, AWorkerThatNeverLetsGoIsLostAndItsDevicesComeBackWithIt) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  cluster.deaf_aborts = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_TRUE(cluster.Cancel(job).ok());
  const int64_t deadline_ms = SimCluster::DefaultOptions().release_deadline_ms;
  cluster.SettleFor(deadline_ms);
  EXPECT_EQ(cluster.core().WorkerCounts().at("READY"), 1) << "it has the time that was promised";
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.core().WorkerCounts().at("LOST"), 1);
  ASSERT_TRUE(cluster.refused().contains("w0"));
  EXPECT_THAT(cluster.refused().at("w0").message(), HasSubstr("mesh generation 1 (job 1)"));
  cluster.hold_reports = false;
  cluster.deaf_aborts = false;
  cluster.Reconnect("w0");
  const int64_t next = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(next).state, JobState::kSucceeded);
}

TEST(CoreMembership, AnErrorThatSaysNothingIsAProtocolError) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  cluster.FeedFrom("w0", proto::MeshError{MeshGeneration(1), {}});
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Info(job).reason, "ProtocolError");
  EXPECT_THAT(cluster.Info(job).message, HasSubstr("'w0'"));
}

TEST(CoreMembership, RefusesAWorkerWhoseTextsAreTooLong) {
  SimCluster cluster;
  for (std::string proto::Register::*text :
       {&proto::Register::name, &proto::Register::address, &proto::Register::host_id,
        &proto::Register::version, &proto::Register::metrics_address}) {
    proto::Register info;
    info.name = "w";
    info.devices = 1;
    info.*text = std::string(257, 'x');
    const Status refusal = cluster.Refusal(info);
    EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refusal.message(), HasSubstr("257 bytes"));
  }
}

TEST(CoreMembership, RefusesAWorkerWhoseTextsATerminalWouldObey) {
  SimCluster cluster;
  for (std::string proto::Register::*text :
       {&proto::Register::name, &proto::Register::address, &proto::Register::host_id,
        &proto::Register::device_name, &proto::Register::metrics_address}) {
    proto::Register info;
    info.name = "w";
    info.devices = 1;
    info.*text = "a\x1b[2Jb\nc";
    const Status refusal = cluster.Refusal(info);
    EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refusal.message(), HasSubstr("a\\x1b[2Jb\\x0ac"));
  }
  for (const int64_t bytes : {int64_t{-1}, INT64_MAX}) {
    proto::Register info;
    info.name = "w";
    info.devices = 1;
    info.memory_bytes = bytes;
    EXPECT_THAT(cluster.Refusal(info).message(), HasSubstr("bytes of memory"));
  }
}

TEST(CoreLaunches, ALongValidationGoesInPartsAndCountsAsOne) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 4);
  request.train.validate_every = 2;
  request.train.validation_batches = 2 * LaunchSchedule::kMaxBatchesPerLaunch + 500;
  const int64_t job = cluster.Submit(request);
  cluster.Settle();
  ASSERT_EQ(cluster.Info(job).state, JobState::kSucceeded) << cluster.Info(job).message;
  std::vector<int64_t> validated;
  for (const auto& step : cluster.steps(job)) {
    if (!std::isnan(step.validation_loss)) validated.push_back(step.step);
  }
  EXPECT_EQ(validated, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(cluster.steps(job).size(), 4u);
  const int64_t hosts = 2;
  EXPECT_EQ(cluster.core().MessageCounts(JobId(job)).at("Launch"), (1 + 4 + 2 * 3) * hosts);
  // Ten tokens a batch in the played workers: all batches are in the sum.
  int mentioned = 0;
  for (const std::string& line : cluster.lines(job)) {
    mentioned += line.find("(25000 tokens") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(mentioned, 2);
}

}  // namespace
}  // namespace meshwright::controller
