// A job that fails for good is saved first: what the memory of workers has and no checkpoint has.
// That what is restored and saved is whole, the simulated cluster checks in all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "controller/last_save.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two workers of one device each, and a job on them that has done four of its ten steps, with a
// snapshot of every step and a checkpoint of none, and may not recover.
class ALastSave : public ::testing::Test {
 protected:
  static ir::JobRequest Request() {
    ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 10);
    request.fault_tolerance.snapshot_every = 1;
    request.fault_tolerance.copies = 0;
    request.fault_tolerance.max_recoveries = 0;
    request.checkpoint.enable = true;
    request.checkpoint.interval = 100;
    return request;
  }
  void Run(const ir::JobRequest& request = Request()) {
    cluster_.AddWorkers(2);
    cluster_.hold_from = 4;
    job_ = cluster_.Submit(request);
    cluster_.Settle();
    ASSERT_EQ(Info().steps_done, 4);
  }
  void KillExecutor(uint64_t gen) {
    const Status why = Internal("killed by signal 9").WithBlame(Blame::kInfra);
    cluster_.FeedFrom("w1",
                      proto::MeshError{MeshGeneration(gen),
                                       proto::MakeError(ErrorKind::kExecutorLost, why, "w1")});
  }
  void Fail() {
    KillExecutor(1);
    cluster_.Settle();
  }
  proto::JobInfo Info() { return cluster_.Info(job_); }
  // How the job ends by itself.
  void ExpectEnd(const std::string& rest) {
    EXPECT_EQ(Info().state, JobState::kFailed);
    EXPECT_EQ(Info().reason, "ExecutorLost");
    EXPECT_THAT(Info().message, AllOf(HasSubstr("killed by signal 9"), HasSubstr(rest)));
    EXPECT_EQ(cluster_.states().snapshots(), 0u) << "nobody needs them any more";
    for (const auto& worker : cluster_.core().Workers(Now{})) EXPECT_EQ(worker.busy_devices, 0);
  }

  SimCluster cluster_;
  int64_t job_ = 0;
};

TEST_F(ALastSave, HasWhatWasInMemory) {
  Run();
  Fail();
  ExpectEnd("its state after step 3 is saved: 'meshwright submit --resume 1'");
  EXPECT_THAT(cluster_.states().causes(), ElementsAre("failure"));
  EXPECT_EQ(cluster_.Record(job_).checkpoint_step, 3);
  EXPECT_EQ(Info().steps_done, 4) << "what was done is not undone";
  EXPECT_THAT(cluster_.lines(job_), Contains(HasSubstr("its state is saved from the snapshot")));
}

TEST_F(ALastSave, RunsNoStep) {
  Run();
  cluster_.hold_from = -1;
  Fail();
  ExpectEnd("is saved");
  EXPECT_EQ(cluster_.steps(job_).size(), 4u);
}

TEST_F(ALastSave, ComesWhenTheFaultIsItsOwn) {
  ir::JobRequest request = Request();
  request.fault_tolerance.max_recoveries = 10;
  Run(request);
  const auto fail = [&](uint64_t gen) {
    cluster_.FeedFrom(
        "w0", proto::MeshError{MeshGeneration(gen),
                               proto::MakeError(ErrorKind::kStepFailed, Internal("kernel"), "w0")});
    cluster_.Settle();
  };
  fail(1);
  ASSERT_EQ(Info().state, JobState::kRunning);
  fail(2);
  EXPECT_EQ(Info().state, JobState::kFailed);
  EXPECT_THAT(Info().message, AllOf(HasSubstr("failed twice in the same way after step 4"),
                                    HasSubstr("its state after step 4 is saved")));
}

TEST_F(ALastSave, IsNoneWhereACheckpointHasAll) {
  ir::JobRequest request = Request();
  request.checkpoint.interval = 4;
  Run(request);
  ASSERT_EQ(cluster_.Record(job_).checkpoint_step, 4);
  Fail();
  ExpectEnd("recovered 0 times within a day");
  EXPECT_THAT(Info().message, Not(HasSubstr("state")));
  EXPECT_THAT(cluster_.states().causes(), ElementsAre("interval"));
}

TEST_F(ALastSave, IsNoneOfAJobWithoutCheckpoints) {
  ir::JobRequest request = Request();
  request.checkpoint.enable = false;
  Run(request);
  Fail();
  ExpectEnd("recovered 0 times within a day");
  EXPECT_THAT(cluster_.states().causes(), IsEmpty());
}

TEST_F(ALastSave, IsNoneOfAStateThatLedToNoNumber) {
  cluster_.AddWorkers(2);
  cluster_.diverges_at = 4;
  job_ = cluster_.Submit(Request());
  cluster_.Settle();
  EXPECT_EQ(Info().reason, "Diverged");
  EXPECT_THAT(cluster_.states().causes(), IsEmpty());
}

TEST_F(ALastSave, IsGivenUpWhereTheMemoryIsGone) {
  Run();
  cluster_.Kill("w1");
  cluster_.Settle();
  EXPECT_EQ(Info().state, JobState::kFailed);
  EXPECT_THAT(Info().message,
              HasSubstr("its last state could not be saved: the memory of workers"));
}

TEST_F(ALastSave, IsGivenUpWhenItFails) {
  Run();
  cluster_.fail_write["w0"] =
      proto::MakeError(ErrorKind::kSaveFailed, Unavailable("the disk is full"), "w0");
  Fail();
  ExpectEnd("its last state could not be saved: the checkpoint was not written");
}

TEST_F(ALastSave, IsGivenUpWhenItsRunFails) {
  Run();
  cluster_.fail_next["w0"] = proto::MakeError(ErrorKind::kLoadFailed, Internal("no room"), "w0");
  Fail();
  ExpectEnd("its last state could not be saved: no room");
}

TEST_F(ALastSave, HasAMinute) {
  Run();
  cluster_.hold_writes = true;
  Fail();
  ASSERT_EQ(Info().state, JobState::kRunning);
  EXPECT_EQ(Info().reason, "Failing");
  EXPECT_THAT(cluster_.Pause(job_).message(), HasSubstr("has failed, and is saved before it ends"));
  cluster_.SettleFor(61'000);
  ExpectEnd("its last state could not be saved");
}

TEST_F(ALastSave, DoesNotKeepACancelWaiting) {
  Run();
  cluster_.hold_writes = true;
  Fail();
  ASSERT_TRUE(cluster_.Cancel(job_).ok());
  ASSERT_TRUE(cluster_.Cancel(job_).ok());
  cluster_.Settle();
  EXPECT_EQ(Info().state, JobState::kCancelled);
}

TEST(LastSaveDriver, RestoresAndSavesAndHalts) {
  LastSave driver(7);
  EXPECT_EQ(driver.Next(), (PlannedLaunch{"", 7, 0, LaunchKind::kRestore}));
  EXPECT_EQ(driver.Next(), (PlannedLaunch{"", 7, 0, LaunchKind::kSave, SaveCause::kFailure}));
  EXPECT_FALSE(driver.halted());
  EXPECT_EQ(driver.Next(), std::nullopt);
  driver.SaveEnded(true);
  EXPECT_TRUE(driver.halted());
  EXPECT_FALSE(driver.done());
}

}  // namespace
}  // namespace meshwright::controller
