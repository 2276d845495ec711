// Workers that give their work away: cordoned, drained, evicted, told to stop, quarantined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using proto::WorkerOrder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Workers of one device each, and a job on some of them.
struct Floor {
  SimCluster cluster;
  int64_t job = 0;

  explicit Floor(int workers) { cluster.AddWorkers(workers); }
  static ir::JobRequest Saved(int64_t devices) {
    ir::JobRequest request = SimCluster::MakeJob(devices, 1, 1, 10);
    request.checkpoint.enable = true;
    request.checkpoint.interval = 0;
    return request;
  }
  static ir::JobRequest Unsaved(int64_t devices) {
    ir::JobRequest request = SimCluster::MakeJob(devices, 1, 1, 10);
    request.fault_tolerance.snapshot_every = 0;
    return request;
  }
  // Until some steps are done; others are under way.
  void Run(const ir::JobRequest& request) {
    job = cluster.Submit(request);
    for (int i = 0; i < 10'000 && Info().steps_done < 3; ++i) ASSERT_TRUE(cluster.DeliverOne());
    ASSERT_EQ(Info().state, JobState::kRunning);
  }
  proto::JobInfo Info() const { return cluster.Info(job); }
  std::string StateOf(const std::string& name) const {
    for (const auto& worker : cluster.core().Workers(Now{})) {
      if (worker.name == name) return worker.state;
    }
    return "";
  }
  std::vector<std::string> MembersOfLastMesh() const {
    std::vector<std::string> workers;
    for (const proto::Member& member : cluster.last_load->members) workers.push_back(member.worker);
    return workers;
  }
  Status Order(const std::string& name, WorkerOrder order, int64_t deadline_ms = 0) {
    return cluster.Order(name, order, deadline_ms);
  }
  void ExpectAllStepsOnceAndNoneLost() {
    EXPECT_EQ(Info().state, JobState::kSucceeded) << Info().message;
    EXPECT_THAT(cluster.steps(job), SizeIs(10));
    EXPECT_THAT(cluster.lines(job), Contains(HasSubstr(", 0 steps are run again")));
    EXPECT_THAT(cluster.states().causes(), Contains("drain"));
  }
};

// ---- Cordon -------------------------------------------------------------------------------------

TEST(Cordon, GivesAWorkerNothingNewAndLetsItsJobsGoOn) {
  Floor floor(2);
  floor.Run(Floor::Saved(1));
  ASSERT_EQ(floor.MembersOfLastMesh().at(0), "w0");
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kCordon).ok());
  EXPECT_EQ(floor.StateOf("w0"), "CORDONED");
  EXPECT_EQ(floor.cluster.core().WorkerCounts().at("CORDONED"), 1);
  floor.cluster.Settle();
  EXPECT_EQ(floor.Info().state, JobState::kSucceeded);
  EXPECT_THAT(floor.cluster.states().causes(), ElementsAre("end"));
  for (int i = 0; i < 3; ++i) {
    const int64_t other = floor.cluster.Submit(Floor::Unsaved(1));
    floor.cluster.Settle();
    EXPECT_EQ(floor.cluster.Info(other).state, JobState::kSucceeded);
    EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1"));
  }
  const int64_t wide = floor.cluster.Submit(Floor::Unsaved(2));
  floor.cluster.SettleFor(10'000);
  EXPECT_EQ(floor.cluster.Info(wide).state, JobState::kQueued) << "it would fit again";
  EXPECT_THAT(floor.cluster.Info(wide).message, HasSubstr("1 are on workers that take no jobs"));
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kUncordon).ok());
  EXPECT_EQ(floor.StateOf("w0"), "READY");
  floor.cluster.Settle();
  EXPECT_EQ(floor.cluster.Info(wide).state, JobState::kSucceeded);
}

TEST(Cordon, OutlivesControllerAndWorker) {
  Floor floor(2);
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kCordon).ok());
  floor.cluster.RestartController();
  for (const char* worker : {"w0", "w1"}) floor.cluster.AddWorker(worker, 1);
  floor.cluster.Settle();
  EXPECT_EQ(floor.StateOf("w0"), "CORDONED");
  floor.Run(Floor::Saved(1));
  EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1"));
}

TEST(Cordon, IsAnsweredOnceItIsOnDiskAndOnlyForWorkersThatAreKnown) {
  Floor floor(1);
  EXPECT_EQ(floor.Order("nobody", WorkerOrder::kCordon).code(), StatusCode::kNotFound);
  EXPECT_EQ(floor.Order("w0", WorkerOrder::kUnspecified).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(floor.Order("w0", WorkerOrder::kUncordon).ok()) << "it is open";
  FailWrites(floor.cluster.disk(), 1, ResourceExhausted("disk full"));
  const Status unwritten = floor.Order("w0", WorkerOrder::kCordon);
  EXPECT_EQ(unwritten.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(unwritten.message(), HasSubstr("not written down"));
  FailWrites(floor.cluster.disk(), 0, OkStatus());
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kDrain).ok());
  EXPECT_EQ(ReadMemoryDisk(floor.cluster.disk()).standings.at(0).standing, Standing::kDrained);
}

// ---- Drain --------------------------------------------------------------------------------------

TEST(Drain, MovesAJobToASpareAndNoStepIsLost) {
  Floor floor(3);
  floor.Run(Floor::Saved(2));
  ASSERT_THAT(floor.MembersOfLastMesh(), UnorderedElementsAre("w0", "w1"));
  ASSERT_TRUE(floor.Order("w1", WorkerOrder::kDrain).ok());
  EXPECT_EQ(floor.StateOf("w1"), "DRAINING");
  EXPECT_EQ(floor.Info().reason, "Moving");
  floor.cluster.Settle();
  EXPECT_THAT(floor.MembersOfLastMesh(), UnorderedElementsAre("w0", "w2"));
  EXPECT_EQ(floor.cluster.plans, 1) << "by the same plan";
  floor.ExpectAllStepsOnceAndNoneLost();
  EXPECT_EQ(floor.StateOf("w1"), "DRAINED");
}

TEST(Drain, WithoutASpareTheJobWaitsForOne) {
  Floor floor(2);
  ir::JobRequest request = Floor::Saved(2);
  request.fault_tolerance.elastic = ir::Elastic::kOff;
  floor.Run(request);
  ASSERT_TRUE(floor.Order("w1", WorkerOrder::kDrain).ok());
  floor.cluster.SettleFor(10'000);
  EXPECT_EQ(floor.StateOf("w1"), "DRAINED");
  EXPECT_EQ(floor.Info().state, JobState::kRecovering);
  floor.cluster.AddWorker("w2", 1);
  floor.cluster.Settle();
  floor.ExpectAllStepsOnceAndNoneLost();
}

TEST(Drain, AJobThatIsNotSavedMayEndByItselfUntilTheDeadline) {
  Floor ends(2);
  ends.Run(Floor::Unsaved(1));
  ASSERT_TRUE(ends.Order("w0", WorkerOrder::kDrain, 60'000).ok());
  ends.cluster.Settle();
  EXPECT_EQ(ends.Info().state, JobState::kSucceeded);
  EXPECT_THAT(ends.cluster.lines(ends.job), Not(Contains(HasSubstr("recovering"))));
  EXPECT_EQ(ends.StateOf("w0"), "DRAINED");

  Floor late(2);
  late.cluster.hold_from = 5;
  late.job = late.cluster.Submit(Floor::Unsaved(1));
  late.cluster.Settle();
  ASSERT_TRUE(late.Order("w0", WorkerOrder::kDrain, 60'000).ok());
  late.cluster.SettleFor(59'000);
  EXPECT_EQ(late.Info().state, JobState::kRunning);
  EXPECT_EQ(late.StateOf("w0"), "DRAINING");
  late.cluster.hold_from = -1;
  late.cluster.SettleFor(2000);
  EXPECT_EQ(late.StateOf("w0"), "DRAINED");
  EXPECT_EQ(late.Info().state, JobState::kSucceeded) << "elsewhere, from the beginning";
  EXPECT_THAT(late.MembersOfLastMesh(), ElementsAre("w1"));
}

TEST(Drain, ASaveThatHangsIsEndedAtTheDeadline) {
  Floor floor(2);
  floor.Run(Floor::Saved(1));
  floor.cluster.hold_writes = true;
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kDrain).ok());
  floor.cluster.SettleFor(119'000);
  EXPECT_EQ(floor.StateOf("w0"), "DRAINING");
  floor.cluster.hold_writes = false;
  // The default of two minutes.
  floor.cluster.hold_writes = true;
  floor.cluster.SettleFor(2000);
  EXPECT_EQ(floor.StateOf("w0"), "DRAINED");
}

TEST(Drain, AJobThatIsPlannedThereIsPlannedElsewhere) {
  Floor floor(2);
  floor.cluster.hold_plans = true;
  floor.job = floor.cluster.Submit(Floor::Unsaved(1));
  floor.cluster.Settle();
  ASSERT_EQ(floor.Info().state, JobState::kPlanning);
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kDrain).ok());
  EXPECT_EQ(floor.StateOf("w0"), "DRAINED");
  floor.cluster.hold_plans = false;
  floor.cluster.Settle();
  EXPECT_EQ(floor.Info().state, JobState::kSucceeded);
  EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1"));
}

TEST(Drain, OfAWorkerThatIsGoneIsDoneAndOneThatComesBackIsClosed) {
  Floor floor(2);
  floor.cluster.Kill("w0");
  floor.cluster.Settle();
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kDrain).ok());
  EXPECT_EQ(floor.StateOf("w0"), "LOST");
  floor.cluster.AddWorker("w0", 1);
  floor.cluster.Settle();
  EXPECT_EQ(floor.StateOf("w0"), "DRAINED");
  floor.Run(Floor::Saved(1));
  EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1"));
}

TEST(Evict, EndsWhatRunsThereAtOnce) {
  Floor floor(2);
  floor.Run(Floor::Saved(1));
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kEvict).ok());
  floor.cluster.Settle();
  EXPECT_EQ(floor.StateOf("w0"), "DRAINED");
  EXPECT_EQ(floor.Info().state, JobState::kSucceeded);
  EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1"));
  EXPECT_THAT(floor.cluster.lines(floor.job), Contains(HasSubstr("recovering: evicted")));
}

// ---- A worker that is told to stop --------------------------------------------------------------

TEST(Leave, ItsJobsAreMovedBeforeItGoes) {
  Floor floor(3);
  floor.Run(Floor::Saved(2));
  floor.cluster.Leave("w1", 90'000);
  floor.cluster.Settle();
  EXPECT_TRUE(floor.cluster.worker("w1").drained);
  EXPECT_THAT(floor.MembersOfLastMesh(), UnorderedElementsAre("w0", "w2"));
  floor.ExpectAllStepsOnceAndNoneLost();
  floor.cluster.Kill("w1");
  floor.cluster.Settle();
  EXPECT_EQ(floor.StateOf("w1"), "LEFT");
  floor.cluster.AddWorker("w1", 1);
  floor.cluster.Settle();
  EXPECT_EQ(floor.StateOf("w1"), "READY") << "nobody has closed it";
}

TEST(Leave, AnIdleOneGoesAtOnce) {
  Floor floor(1);
  floor.cluster.Leave("w0", 90'000);
  floor.cluster.Settle();
  EXPECT_TRUE(floor.cluster.worker("w0").drained);
}

TEST(Leave, IsNotKeptForWhatCannotBeSaved) {
  Floor floor(2);
  floor.Run(Floor::Unsaved(1));
  floor.cluster.Leave("w0", 90'000);
  floor.cluster.Settle();
  EXPECT_TRUE(floor.cluster.worker("w0").drained);
  EXPECT_EQ(floor.Info().state, JobState::kSucceeded);
  EXPECT_THAT(floor.cluster.lines(floor.job), Contains(HasSubstr("recovering")));
}

TEST(Leave, WhatIsLateIsEnded) {
  Floor floor(2);
  floor.Run(Floor::Saved(1));
  floor.cluster.hold_writes = true;
  floor.cluster.Leave("w0", 5000);
  floor.cluster.SettleFor(4500);
  EXPECT_FALSE(floor.cluster.worker("w0").drained);
  floor.cluster.SettleFor(1000);
  EXPECT_TRUE(floor.cluster.worker("w0").drained);
}

TEST(Leave, ASecondTimeIsAtOnce) {
  Floor floor(2);
  floor.Run(Floor::Saved(1));
  floor.cluster.hold_writes = true;
  floor.cluster.Leave("w0", 90'000);
  floor.cluster.Settle();
  EXPECT_FALSE(floor.cluster.worker("w0").drained);
  floor.cluster.Leave("w0");
  floor.cluster.SettleFor(1000);
  EXPECT_TRUE(floor.cluster.worker("w0").drained);
}

// ---- Quarantine ---------------------------------------------------------------------------------

// A step of the job fails on a worker, whose machine is to blame.
void Break(Floor& floor, const std::string& worker, Blame blame = Blame::kHardware) {
  const uint64_t gen = floor.cluster.last_load->mesh_gen.value();
  floor.cluster.FeedFrom(
      worker, proto::MeshError{MeshGeneration(gen),
                               proto::MakeError(ErrorKind::kStepFailed,
                                                Unavailable("ECC").WithBlame(blame), worker)});
}

TEST(Quarantine, TwoFailuresOfAMachineCloseItAndRecoveryAvoidsIt) {
  Floor floor(2);
  floor.cluster.hold_from = 4;
  floor.job = floor.cluster.Submit(Floor::Unsaved(1));
  floor.cluster.Settle();
  ASSERT_THAT(floor.MembersOfLastMesh(), ElementsAre("w0"));
  Break(floor, "w0");
  floor.cluster.Settle();
  EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1")) << "not where it failed";
  EXPECT_EQ(floor.StateOf("w0"), "READY") << "once is no rule";
  const int64_t other = floor.cluster.Submit(Floor::Unsaved(1));
  floor.cluster.Settle();
  ASSERT_THAT(floor.MembersOfLastMesh(), ElementsAre("w0"));
  Break(floor, "w0");
  floor.cluster.Settle();
  EXPECT_EQ(floor.StateOf("w0"), "QUARANTINED");
  EXPECT_THAT(floor.cluster.lines(other), Contains(HasSubstr("worker 'w0' is quarantined")));
  floor.cluster.hold_from = -1;
  EXPECT_TRUE(floor.cluster.Cancel(floor.job).ok());
  floor.cluster.Settle();
  EXPECT_THAT(floor.MembersOfLastMesh(), ElementsAre("w1"));
  EXPECT_EQ(floor.cluster.Info(other).state, JobState::kSucceeded);
  ASSERT_TRUE(floor.Order("w0", WorkerOrder::kUncordon).ok());
  EXPECT_EQ(floor.StateOf("w0"), "READY");
}

TEST(Quarantine, NotForWhatLiesFurtherApart) {
  Floor floor(1);
  for (int i = 0; i < 3; ++i) {
    floor.cluster.hold_from = 4;
    floor.job = floor.cluster.Submit(WithoutRecovery(Floor::Unsaved(1)));
    floor.cluster.Settle();
    Break(floor, "w0");
    floor.cluster.Settle();
    EXPECT_EQ(floor.StateOf("w0"), "READY");
    floor.cluster.SettleFor(600'000);
  }
}

TEST(Quarantine, NotForAJobThatFailsWhereverItRuns) {
  Floor floor(2);
  for (int i = 0; i < 3; ++i) {
    floor.cluster.hold_from = 4;
    floor.job = floor.cluster.Submit(Floor::Unsaved(1));
    floor.cluster.Settle();
    for (int runs = 0; runs < 2; ++runs) {
      Break(floor, floor.MembersOfLastMesh().at(0));
      floor.cluster.Settle();
    }
    EXPECT_EQ(floor.Info().state, JobState::kFailed);
    EXPECT_THAT(floor.Info().message, HasSubstr("failed twice in the same way"));
  }
  EXPECT_EQ(floor.StateOf("w0"), "READY");
  EXPECT_EQ(floor.StateOf("w1"), "READY");
}

TEST(Quarantine, OffWhenItIsToldSo) {
  CoreOptions options = SimCluster::DefaultOptions();
  options.quarantine_failures = 0;
  SimCluster cluster(options);
  cluster.AddWorkers(1);
  for (int i = 0; i < 3; ++i) {
    cluster.fail_next["w0"] = proto::MakeError(
        ErrorKind::kLoadFailed, ResourceExhausted("disk full").WithBlame(Blame::kInfra), "w0");
    (void)cluster.Submit(WithoutRecovery(Floor::Unsaved(1)));
    cluster.Settle();
  }
  EXPECT_EQ(cluster.core().WorkerCounts().at("READY"), 1);
}

}  // namespace
}  // namespace meshwright::controller
