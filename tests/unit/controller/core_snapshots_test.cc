// A job goes on from snapshots in the memory of workers: one promise per test. That what is
// restored is whole, of one mesh and one step, and on record, the simulated cluster checks in all
// of them. Each worker has a part of the state that nobody else has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Two workers of one device each, and a job on them that has done four of its ten steps.
class CoreSnapshots : public ::testing::Test {
 protected:
  static ir::JobRequest Request(int64_t every = 1, int64_t copies = 0) {
    ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 10);
    request.fault_tolerance.snapshot_every = every;
    request.fault_tolerance.copies = copies;
    return request;
  }
  void Run(const ir::JobRequest& request) {
    cluster_.AddWorkers(2);
    cluster_.hold_from = 4;
    job_ = cluster_.Submit(request);
    cluster_.Settle();
    ASSERT_EQ(cluster_.Info(job_).steps_done, 4);
  }
  // The process of the mesh dies on a worker, which stays.
  void KillExecutor(const std::string& worker, uint64_t gen) {
    const Status why = Internal("killed by signal 9").WithBlame(Blame::kInfra);
    cluster_.FeedFrom(worker,
                      proto::MeshError{MeshGeneration(gen),
                                       proto::MakeError(ErrorKind::kExecutorLost, why, worker)});
  }
  void ExpectDone() {
    const proto::JobInfo info = cluster_.Info(job_);
    EXPECT_EQ(info.state, JobState::kSucceeded) << info.message;
    EXPECT_THAT(cluster_.steps(job_), SizeIs(10));
    EXPECT_EQ(cluster_.states().snapshots(), 0u) << "nobody needs them any more";
  }
  void ExpectLine(const std::string& text) {
    EXPECT_THAT(cluster_.lines(job_), Contains(HasSubstr(text)));
  }
  int64_t Sent(const char* kind) {
    const auto counts = cluster_.core().MessageCounts(JobId(job_));
    const auto it = counts.find(kind);
    return it == counts.end() ? 0 : it->second;
  }

  SimCluster cluster_;
  int64_t job_ = 0;
};

TEST_F(CoreSnapshots, AnExecutorThatDiesCostsAStepOrNone) {
  Run(Request());
  cluster_.hold_from = -1;
  KillExecutor("w1", 1);
  cluster_.Settle();
  ExpectDone();
  EXPECT_EQ(cluster_.states().snapshot_restores(), 2) << "of both workers";
  // Snapshots 1 and 3: a snapshot is begun when the one before is known to be whole.
  ExpectLine("goes on from the snapshot of step ");
  EXPECT_THAT(cluster_.lines(job_), Not(Contains(HasSubstr("from the beginning"))));
}

TEST_F(CoreSnapshots, AWorkerThatIsLostTakesWhatOnlyItHolds) {
  Run(Request());
  cluster_.hold_from = -1;
  cluster_.Kill("w1");
  cluster_.Settle();
  ExpectLine("is not whole: tensor 's'");
  ExpectLine("goes on from the beginning, 4 steps are run again");
  cluster_.AddWorker("w1", 1);
  cluster_.Settle();
  ExpectDone();
  EXPECT_EQ(cluster_.states().snapshot_restores(), 0);
}

TEST_F(CoreSnapshots, ACopyOutlivesTheWorker) {
  Run(Request(/*every=*/2, /*copies=*/1));
  // The launch behind which the next one is due went out before these were there.
  EXPECT_EQ(cluster_.states().copies(), 2) << "of one step, each worker's part";
  cluster_.hold_from = -1;
  cluster_.Kill("w1");
  cluster_.Settle();
  ExpectLine("goes on from the snapshot of step 2, 2 steps are run again");
  cluster_.AddWorker("w1", 1);
  cluster_.Settle();
  ExpectDone();
  EXPECT_EQ(cluster_.states().snapshot_restores(), 2);
}

// A job of one worker, and others that have no part in it.
class CopiesBesideTheMesh : public CoreSnapshots {
 protected:
  void RunOnOneOf(int workers, int64_t copies) {
    ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 10);
    request.fault_tolerance.snapshot_every = 2;
    request.fault_tolerance.copies = copies;
    cluster_.AddWorkers(workers);
    cluster_.hold_from = 4;
    job_ = cluster_.Submit(request);
    cluster_.Settle();
    ASSERT_EQ(cluster_.Info(job_).steps_done, 4);
    ASSERT_EQ(cluster_.last_load->members.at(0).worker, "w0");
  }
};

TEST_F(CopiesBesideTheMesh, OutliveTheOnlyWorkerOfAJob) {
  RunOnOneOf(2, 1);
  EXPECT_GE(cluster_.states().copies(), 1);
  cluster_.hold_from = -1;
  cluster_.Kill("w0");
  cluster_.Settle();
  ExpectLine("goes on from the snapshot of step 2, 2 steps are run again");
  EXPECT_EQ(cluster_.last_load->members.at(0).worker, "w1");
  cluster_.AddWorker("w0", 1);
  cluster_.Settle();
  ExpectDone();
}

TEST_F(CopiesBesideTheMesh, AreAsManyAsThereAreOthers) {
  RunOnOneOf(4, 9);
  EXPECT_EQ(cluster_.states().copies() % 3, 0);
  EXPECT_GE(cluster_.states().copies(), 3);
  cluster_.hold_from = -1;
  KillExecutor("w0", 1);
  cluster_.Settle();
  ExpectDone();
}

TEST_F(CopiesBesideTheMesh, AKeeperThatIsGoneIsNotWaitedFor) {
  cluster_.hold_copies = true;
  RunOnOneOf(2, 1);
  cluster_.Kill("w1");
  cluster_.Settle();
  ExpectLine("snapshots of this run are not copied any more: worker 'w1' is gone");
  cluster_.hold_from = -1;
  KillExecutor("w0", 1);
  cluster_.Settle();
  ExpectDone();
  EXPECT_THAT(cluster_.lines(job_), Not(Contains(HasSubstr("from the beginning"))));
}

TEST_F(CopiesBesideTheMesh, AreKnownToTheNextController) {
  RunOnOneOf(2, 1);
  cluster_.RestartController();
  cluster_.AddWorker("w0", 1);  // it has not held its mesh
  cluster_.Reconnect("w1");
  cluster_.hold_from = -1;
  cluster_.SettleFor(10'000);
  ExpectDone();
  ExpectLine("goes on from the snapshot of step 2");
}

TEST_F(CoreSnapshots, NoSnapshotIsBegunBeforeTheOneBeforeIsCopied) {
  cluster_.AddWorkers(2);
  job_ = cluster_.Submit(Request(/*every=*/1, /*copies=*/1));
  while (Sent("CopySnapshot") == 0) ASSERT_TRUE(cluster_.DeliverOne());
  // Both are asked to copy, and do not answer.
  cluster_.hold_copies = true;
  cluster_.Settle();
  EXPECT_EQ(cluster_.Info(job_).state, JobState::kSucceeded) << "nobody waits for copies";
  EXPECT_EQ(Sent("CopySnapshot"), 2);
}

TEST_F(CoreSnapshots, WithoutMemoryForCopiesItGoesOnWithoutThem) {
  Run(Request(/*every=*/1, /*copies=*/1));
  const int64_t before = cluster_.states().copies();
  cluster_.no_copies = {"w1"};
  cluster_.hold_from = 8;
  KillExecutor("w0", 1);
  cluster_.Settle();
  ASSERT_EQ(cluster_.Info(job_).steps_done, 8);
  ExpectLine("snapshots of this run are not copied any more: worker 'w1': no memory for copies");
  EXPECT_LE(cluster_.states().copies(), before + 1) << "of the first snapshot, by the other one";
  cluster_.hold_from = -1;
  KillExecutor("w0", 2);
  cluster_.Settle();
  ExpectDone();
}

TEST_F(CoreSnapshots, ACheckpointThatIsNewerIsTaken) {
  ir::JobRequest request = Request(/*every=*/3);
  request.checkpoint.enable = true;
  request.checkpoint.interval = 4;
  Run(request);
  ASSERT_EQ(cluster_.Record(job_).checkpoint_step, 4);
  cluster_.hold_from = -1;
  KillExecutor("w0", 1);
  cluster_.Settle();
  ExpectDone();
  ExpectLine("goes on from the checkpoint of step 4, 0 steps are run again");
  EXPECT_EQ(cluster_.states().snapshot_restores(), 0);
}

TEST_F(CoreSnapshots, OneThatCannotBeReadIsPassedOverForAnOlderOne) {
  ir::JobRequest request = Request(/*every=*/2);
  Run(request);
  cluster_.hold_from = -1;
  KillExecutor("w0", 1);
  while (Sent("RestoreState") < 2) ASSERT_TRUE(cluster_.DeliverOne());
  cluster_.fail_next["w1"] = proto::MakeError(
      ErrorKind::kStepFailed, DataLoss("not what was written").WithBlame(Blame::kInfra), "w1");
  cluster_.Settle();
  ExpectDone();
  ExpectLine("goes on from the snapshot of step 4, 0 steps are run again");
  ExpectLine("goes on from the snapshot of step 2, 2 steps are run again");
}

TEST_F(CoreSnapshots, WithoutOlderOnesItBeginsAgain) {
  Run(Request(/*every=*/4));
  cluster_.hold_from = -1;
  KillExecutor("w0", 1);
  while (Sent("RestoreState") < 2) ASSERT_TRUE(cluster_.DeliverOne());
  cluster_.fail_next["w1"] = proto::MakeError(
      ErrorKind::kStepFailed, DataLoss("not what was written").WithBlame(Blame::kInfra), "w1");
  cluster_.Settle();
  ExpectDone();
  ExpectLine("goes on from the beginning, 4 steps are run again");
}

TEST_F(CoreSnapshots, TheOldOnesAreDroppedOnceTheNextRunHasItsOwn) {
  Run(Request());
  EXPECT_EQ(Sent("DropSnapshots"), 0);
  cluster_.hold_from = 8;
  KillExecutor("w1", 1);
  cluster_.Settle();
  ASSERT_EQ(cluster_.Info(job_).steps_done, 8);
  EXPECT_EQ(Sent("DropSnapshots"), 2);
  EXPECT_EQ(cluster_.states().snapshots(), 2u) << "of one mesh, on two workers";
  cluster_.hold_from = -1;
  KillExecutor("w1", 2);
  cluster_.Settle();
  ExpectDone();
}

TEST_F(CoreSnapshots, ARunThatFailsBeforeItsFirstOneGoesOnFromTheSameAgain) {
  Run(Request(/*every=*/4));
  cluster_.hold_from = 6;
  KillExecutor("w1", 1);
  cluster_.Settle();
  cluster_.hold_from = -1;
  KillExecutor("w1", 2);
  cluster_.Settle();
  ExpectDone();
  EXPECT_EQ(cluster_.states().snapshot_restores(), 4);
}

TEST_F(CoreSnapshots, WithoutMemoryTheRunGoesOnWithoutThem) {
  cluster_.no_memory = {"w1"};
  Run(Request());
  ExpectLine("no snapshots any more, this run goes on without: no memory for snapshots");
  cluster_.hold_from = -1;
  KillExecutor("w1", 1);
  cluster_.Settle();
  ExpectDone();
  ExpectLine("goes on from the beginning");
}

TEST_F(CoreSnapshots, WhoWantsNoneTakesNone) {
  for (const int kind : {0, 1, 2}) {
    SimCluster cluster;
    cluster.AddWorkers(2);
    ir::JobRequest request = Request(kind == 0 ? 0 : 1);
    request.fault_tolerance.enable = kind != 1;
    if (kind == 2) request.driver.kind = ir::DriverKind::kClient;
    EXPECT_EQ(TakesSnapshots(request), false);
    const int64_t job = cluster.Submit(request);
    cluster.Settle();
    for (const std::string& slot : cluster.last_load->ranks.at(0).snapshot_slots)
      ADD_FAILURE() << slot;
    EXPECT_EQ(cluster.states().snapshots(), 0u);
    (void)cluster.Cancel(job);
    cluster.Settle();
    EXPECT_FALSE(cluster.core().MessageCounts(JobId(job)).contains("DropSnapshots"));
  }
}

TEST_F(CoreSnapshots, AWorkerThatDoesNotSayWhatItHoldsIsNotAwaitedForLong) {
  Run(Request());
  cluster_.hold_from = -1;
  cluster_.AddWorker("w2", 1);
  cluster_.Settle();
  KillExecutor("w1", 1);
  while (Sent("QuerySnapshots") == 0) ASSERT_TRUE(cluster_.DeliverOne());
  cluster_.Silence("w1");
  cluster_.Settle();
  EXPECT_EQ(cluster_.Info(job_).state, JobState::kRecovering);
  cluster_.SettleFor(12'000);
  ExpectLine("goes on from the beginning");
  EXPECT_EQ(cluster_.Info(job_).state, JobState::kSucceeded) << cluster_.Info(job_).message;
}

}  // namespace
}  // namespace meshwright::controller
