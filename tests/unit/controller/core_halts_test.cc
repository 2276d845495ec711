// Runs that end before their jobs do: cancelled and paused behind a save. That no step is left out
// and none runs twice, the simulated cluster checks in all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core_view.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ir::JobRequest Saved(int64_t devices = 1, int64_t interval = 0) {
  ir::JobRequest request = SimCluster::MakeJob(devices, 1, 1, 10);
  request.fault_tolerance.snapshot_every = 0;
  request.checkpoint.enable = true;
  request.checkpoint.interval = interval;
  return request;
}

// Workers of one device each, and a job on them.
struct Stage {
  SimCluster cluster;
  int64_t job = 0;

  explicit Stage(const ir::JobRequest& request = Saved(), int workers = 1,
                 CoreOptions options = SimCluster::DefaultOptions())
      : cluster(options) {
    cluster.AddWorkers(workers);
    job = cluster.Submit(request);
  }
  // Until so many steps are done; more are under way.
  void RunTo(int64_t steps) {
    for (int i = 0; i < 10'000 && Info().steps_done < steps; ++i) {
      ASSERT_TRUE(cluster.DeliverOne());
    }
    ASSERT_EQ(Info().state, JobState::kRunning);
  }
  proto::JobInfo Info() const { return cluster.Info(job); }
  int Busy() const {
    int busy = 0;
    for (const auto& worker : cluster.core().Workers(Now{})) busy += worker.busy_devices;
    return busy;
  }
  const std::vector<std::string>& Causes() const { return cluster.states().causes(); }
};

// ---- Causes -------------------------------------------------------------------------------------

TEST(SaveCauses, AreWhatACheckpointWasSavedFor) {
  ir::JobRequest request = Saved(1, 5);
  Stage stage(request);
  stage.cluster.Settle();
  EXPECT_THAT(stage.Causes(), ElementsAre("interval", "end"));
  request.checkpoint.interval = 0;
  request.checkpoint.interval_s = 1;
  Stage timed(request);
  timed.RunTo(2);
  timed.cluster.Advance(1000);
  timed.cluster.Settle();
  EXPECT_THAT(timed.Causes(), ElementsAre("time", "end"));
}

// ---- Cancel -------------------------------------------------------------------------------------

TEST(Cancel, SavesTheStateFirst) {
  Stage stage(Saved(2), 2);
  stage.RunTo(3);
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  EXPECT_EQ(stage.Info().state, JobState::kRunning);
  EXPECT_EQ(stage.Info().reason, "Cancelling");
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
  EXPECT_EQ(stage.Info().reason, "Cancelled");
  EXPECT_THAT(stage.Causes(), ElementsAre("cancel"));
  EXPECT_EQ(stage.Info().checkpoint_step, stage.Info().steps_done);
  EXPECT_LE(stage.Info().steps_done, 6) << "what was under way, and no more";
  EXPECT_EQ(stage.Busy(), 0);
}

TEST(Cancel, EndsAtOnceWhereNothingIsSaved) {
  ir::JobRequest request = Saved();
  request.checkpoint.enable = false;
  Stage stage(request);
  stage.RunTo(3);
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
  EXPECT_THAT(stage.Causes(), IsEmpty());
}

TEST(Cancel, DoesNotSaveTheSameStateAgain) {
  Stage stage(Saved(1, 4));
  stage.cluster.hold_from = 4;
  stage.cluster.Settle();
  ASSERT_EQ(stage.Info().checkpoint_step, 4);
  stage.cluster.hold_from = -1;
  // Step 4 hangs, so that nothing but a fault ends the run.
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.SettleFor(29'900);
  EXPECT_EQ(stage.Info().state, JobState::kRunning);
  stage.cluster.SettleFor(200);
  EXPECT_EQ(stage.Info().state, JobState::kCancelled) << "a hang is not waited for for ever";
  EXPECT_THAT(stage.Causes(), ElementsAre("interval"));
}

TEST(Cancel, ASecondTimeDoesNotWait) {
  Stage stage;
  stage.RunTo(3);
  stage.cluster.hold_writes = true;
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kRunning) << "the save is being written";
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
  EXPECT_EQ(stage.Info().checkpoint_step, -1);
}

TEST(Cancel, HoldsWhenTheSaveFailsAndWhenTheRunDoes) {
  Stage stage;
  stage.RunTo(3);
  stage.cluster.fail_write["w0"] =
      proto::MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w0");
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
  EXPECT_THAT(stage.cluster.lines(stage.job), Contains(HasSubstr("was not written: disk full")));

  Stage lost(Saved(2), 2);
  lost.RunTo(3);
  lost.cluster.hold_writes = true;
  ASSERT_TRUE(lost.cluster.Cancel(lost.job).ok());
  lost.cluster.Settle();
  lost.cluster.Kill("w1");
  lost.cluster.SettleFor(5000);
  EXPECT_EQ(lost.Info().state, JobState::kCancelled) << lost.Info().message;
}

TEST(Cancel, ALossThatIsNoNumberIsNotSaved) {
  Stage stage;
  stage.RunTo(2);
  stage.cluster.diverges_at = 0;
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_TRUE(proto::IsTerminal(stage.Info().state));
  EXPECT_THAT(stage.Causes(), IsEmpty());
}

TEST(Cancel, ComesAfterTheValidationOfTheStepsThatAreDone) {
  ir::JobRequest request = Saved();
  request.train.validation_batches = 2;
  request.train.validate_every = 1;
  Stage stage(request);
  stage.RunTo(1);
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
  EXPECT_THAT(stage.cluster.steps(stage.job), SizeIs(stage.Info().steps_done));
}

// ---- Save ---------------------------------------------------------------------------------------

TEST(Save, IsWrittenBetweenTwoStepsAndTheJobGoesOn) {
  Stage stage(Saved(2), 2);
  stage.RunTo(3);
  ASSERT_TRUE(stage.cluster.Save(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded) << stage.Info().message;
  EXPECT_THAT(stage.Causes(), ElementsAre("asked", "end"));
  EXPECT_THAT(stage.cluster.steps(stage.job), SizeIs(10));
  EXPECT_THAT(stage.cluster.lines(stage.job), Contains(HasSubstr("a checkpoint was asked for")));
}

TEST(Save, IsRefusedWithTheReason) {
  Stage stage;
  stage.RunTo(2);
  EXPECT_EQ(stage.cluster.Save(99).code(), StatusCode::kNotFound);
  const int64_t waits = stage.cluster.Submit(Saved());
  EXPECT_EQ(stage.cluster.Save(waits).code(), StatusCode::kUnavailable);
  stage.cluster.Settle();
  EXPECT_EQ(stage.cluster.Save(stage.job).code(), StatusCode::kFailedPrecondition);
  ir::JobRequest request = Saved();
  request.checkpoint.enable = false;
  Stage unsaved(request);
  unsaved.RunTo(2);
  const Status refused = unsaved.cluster.Save(unsaved.job);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("checkpoint.enable=true"));
}

// ---- Pause and resume ---------------------------------------------------------------------------

TEST(Pause, FreesTheDevicesAndResumeGoesOnWhereItWas) {
  Stage stage(Saved(2), 2);
  stage.RunTo(3);
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  EXPECT_EQ(stage.Info().reason, "Pausing");
  stage.cluster.Settle();
  ASSERT_EQ(stage.Info().state, JobState::kPaused);
  EXPECT_EQ(stage.cluster.Record(stage.job).state, JobState::kPaused);
  EXPECT_THAT(stage.Causes(), ElementsAre("pause"));
  EXPECT_EQ(stage.Info().checkpoint_step, stage.Info().steps_done);
  EXPECT_EQ(stage.Busy(), 0);
  const int64_t other = stage.cluster.Submit(SimCluster::MakeJob(2, 1, 1, 3));
  stage.cluster.SettleFor(20'000);
  EXPECT_EQ(stage.cluster.Info(other).state, JobState::kSucceeded);
  EXPECT_EQ(stage.Info().state, JobState::kPaused) << "until somebody resumes it";
  EXPECT_TRUE(stage.cluster.Pause(stage.job).ok()) << "it is";
  ASSERT_TRUE(stage.cluster.Resume(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded) << stage.Info().message;
  EXPECT_THAT(stage.cluster.steps(stage.job), SizeIs(10));
  EXPECT_GE(stage.cluster.states().restores(), 2);
}

TEST(Pause, IsSeenAlsoOfAJobThatIsSlow) {
  JobEntry job;
  job.record.state = JobState::kRunning;
  job.attention = {"SlowRank", "rank 2 is slow"};
  EXPECT_EQ(InfoOf(job, CoreOptions()).reason, "SlowRank");
  job.record.reason = "Pausing";
  EXPECT_EQ(InfoOf(job, CoreOptions()).reason, "Pausing");
}

TEST(Pause, IsRefusedWithTheFix) {
  ir::JobRequest request = Saved();
  request.checkpoint.enable = false;
  Stage stage(request);
  stage.RunTo(2);
  const Status refused = stage.cluster.Pause(stage.job);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("checkpoint.enable=true"));
  EXPECT_EQ(stage.cluster.Pause(99).code(), StatusCode::kNotFound);
  EXPECT_EQ(stage.cluster.Resume(99).code(), StatusCode::kNotFound);
  EXPECT_EQ(stage.cluster.Resume(stage.job).code(), StatusCode::kFailedPrecondition);
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded);
  EXPECT_EQ(stage.cluster.Pause(stage.job).code(), StatusCode::kFailedPrecondition);
}

TEST(Pause, OfAJobThatDoesNotRunIsAtOnce) {
  Stage stage(SimCluster::MakeJob(1, 1, 1, 10));
  stage.RunTo(1);
  const int64_t waits = stage.cluster.Submit(Saved());
  stage.cluster.hold_plans = true;
  ASSERT_TRUE(stage.cluster.Pause(waits).ok());
  EXPECT_EQ(stage.cluster.Info(waits).state, JobState::kPaused);
  stage.cluster.Settle();
  const int64_t planned = stage.cluster.Submit(Saved());
  stage.cluster.Settle();
  ASSERT_EQ(stage.cluster.Info(planned).state, JobState::kPlanning);
  ASSERT_TRUE(stage.cluster.Pause(planned).ok());
  EXPECT_EQ(stage.cluster.Info(planned).state, JobState::kPaused);
  EXPECT_EQ(stage.Busy(), 0);
  stage.cluster.hold_plans = false;
  stage.cluster.Settle();
  EXPECT_EQ(stage.cluster.Info(planned).state, JobState::kPaused) << "its plan comes too late";
  for (const int64_t job : {waits, planned}) {
    ASSERT_TRUE(stage.cluster.Resume(job).ok());
    stage.cluster.Settle();
    EXPECT_EQ(stage.cluster.Info(job).state, JobState::kSucceeded);
  }
}

TEST(Pause, GoesOnWhenTheStateCannotBeSavedAndMayBeAskedForAgain) {
  Stage stage;
  stage.RunTo(3);
  stage.cluster.hold_from = 6;
  stage.cluster.fail_write["w0"] =
      proto::MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w0");
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kRunning);
  EXPECT_EQ(stage.Info().reason, "");
  EXPECT_THAT(stage.cluster.lines(stage.job),
              Contains("not paused: its state could not be saved; it goes on"));
  stage.cluster.hold_from = -1;
  stage.cluster.Settle();

  Stage slow;
  slow.RunTo(3);
  slow.cluster.hold_writes = true;
  ASSERT_TRUE(slow.cluster.Pause(slow.job).ok());
  slow.cluster.SettleFor(600'000);
  EXPECT_THAT(slow.cluster.lines(slow.job), Contains(HasSubstr("not paused")));
  slow.cluster.hold_writes = false;
  slow.cluster.Settle();
  EXPECT_EQ(slow.Info().state, JobState::kSucceeded) << slow.Info().message;
}

TEST(Pause, SavesAgainWhatCouldNotBeSavedBefore) {
  Stage stage(Saved(1, 4));
  stage.cluster.fail_write["w0"] =
      proto::MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w0");
  stage.RunTo(4);
  while (stage.cluster.lines(stage.job).back().find("was not written") == std::string::npos) {
    ASSERT_TRUE(stage.cluster.DeliverOne());
  }
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kPaused);
  EXPECT_EQ(stage.Info().checkpoint_step, stage.Info().steps_done);
}

TEST(Pause, ResumedBeforeItIsPausedGoesOn) {
  Stage stage;
  stage.RunTo(3);
  stage.cluster.hold_writes = true;
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  ASSERT_TRUE(stage.cluster.Resume(stage.job).ok());
  stage.cluster.hold_writes = false;
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded);
  EXPECT_EQ(stage.cluster.plans, 1) << "the same run";
}

TEST(Pause, OfARunThatFailsMeanwhileHolds) {
  Stage stage(Saved(2, 2), 2);
  stage.RunTo(3);
  stage.cluster.hold_writes = true;
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  stage.cluster.Kill("w1");
  stage.cluster.SettleFor(5000);
  stage.cluster.hold_writes = false;
  EXPECT_EQ(stage.Info().state, JobState::kPaused) << "it is not to run";
  stage.cluster.AddWorker("w1", 1);
  stage.cluster.SettleFor(1000);
  EXPECT_EQ(stage.Info().state, JobState::kPaused);
  ASSERT_TRUE(stage.cluster.Resume(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded);
}

TEST(Pause, OutlivesTheController) {
  Stage stage(Saved(2), 2);
  stage.RunTo(3);
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  const int64_t done = stage.Info().steps_done;
  stage.cluster.RestartController();
  for (const char* worker : {"w0", "w1"}) stage.cluster.Reconnect(worker);
  stage.cluster.SettleFor(10'000);
  EXPECT_EQ(stage.Info().state, JobState::kPaused);
  EXPECT_EQ(stage.Info().steps_done, done);
  ASSERT_TRUE(stage.cluster.Resume(stage.job).ok());
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded);
  EXPECT_THAT(stage.cluster.steps(stage.job), SizeIs(10));
}

TEST(Pause, OfAJobThatIsDoneIsItsEnd) {
  Stage stage;
  stage.RunTo(9);
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  // The last step was under way: it has nothing left to do.
  EXPECT_EQ(stage.Info().state, JobState::kSucceeded);
  EXPECT_THAT(stage.Causes(), SizeIs(1));
}

TEST(Pause, APausedJobIsCancelled) {
  Stage stage;
  stage.RunTo(3);
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.Settle();
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
}

TEST(Pause, CancelTakesItsPlaceButNotTheOtherWayRound) {
  Stage stage;
  stage.RunTo(3);
  stage.cluster.hold_writes = true;
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  ASSERT_TRUE(stage.cluster.Cancel(stage.job).ok());
  ASSERT_TRUE(stage.cluster.Pause(stage.job).ok());
  stage.cluster.hold_writes = false;
  stage.cluster.Settle();
  EXPECT_EQ(stage.Info().state, JobState::kCancelled);
}

}  // namespace
}  // namespace meshwright::controller
