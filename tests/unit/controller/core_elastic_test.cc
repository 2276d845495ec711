// Jobs that go on with fewer devices: by programs made ahead, and back to their plan. That steps
// come once and in order the simulated cluster checks in all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/works.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// ---- Programs made ahead ------------------------------------------------------------------------

TEST(ProgramsMadeAhead, TakeOverAtOnceWithoutThePlanner) {
  Works works(2);
  works.Run(Works::Request(2));
  ASSERT_EQ(works.asked(), 1u) << "either loss leaves the same";
  EXPECT_EQ(works.cluster.planned_ahead[0].topology.devices.size(), 1u);
  EXPECT_EQ(works.Count("prepared for the loss of a worker: data=1"), 1);
  works.Lose("w1");
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_EQ(works.Info().layout, "data=1");
  EXPECT_EQ(works.cluster.plans, 1);
  EXPECT_TRUE(works.Said("goes on with fewer devices, by the program made ahead"));
  works.Work(2000);
  EXPECT_EQ(works.asked(), 1u) << "one worker: there is nothing to prepare for";
}

TEST(ProgramsMadeAhead, NoneWhereASpareTakesThePlaceButOnceItIsTaken) {
  Works works(3);
  works.Run(Works::Request(2));
  EXPECT_EQ(works.asked(), 0u);
  works.Lose("w1");
  EXPECT_EQ(works.Info().layout, "data=2");
  works.Work(2000);
  EXPECT_EQ(works.asked(), 1u);
  EXPECT_TRUE(works.Said("prepared for the loss of a worker: data=1"));
}

TEST(ProgramsMadeAhead, WaitForWhatIsPlannedForNow) {
  Works works(3);
  works.cluster.hold_plans = true;
  const int64_t queued = works.cluster.Submit(Works::Request(1));
  works.cluster.Settle();
  ASSERT_EQ(works.cluster.Info(queued).state, JobState::kPlanning);
  works.job = works.cluster.Submit(Works::Request(2));
  works.cluster.hold_plans = false;
  works.Work(300);
  works.cluster.hold_plans = true;
  ASSERT_TRUE(works.Runs());
  const int64_t third = works.cluster.Submit(Works::Request(1));
  works.Work(3000);
  ASSERT_EQ(works.cluster.Info(third).state, JobState::kQueued) << "no device";
  EXPECT_EQ(works.asked(), 1u);
  works.cluster.hold_plans = false;
  works.Work(1000);

  Works busy(3);
  busy.Run(Works::Request(2), 300);
  busy.cluster.hold_plans = true;
  const int64_t planned = busy.cluster.Submit(Works::Request(1));
  busy.Work(3000);
  ASSERT_EQ(busy.cluster.Info(planned).state, JobState::kPlanning);
  EXPECT_EQ(busy.asked(), 0u) << "a job waits for the planner";
  busy.cluster.hold_plans = false;
  busy.Work(1000);
  EXPECT_EQ(busy.asked(), 1u);
}

TEST(ProgramsMadeAhead, OfJobsThatCannotGoOnWithFewerThereAreNone) {
  for (int kind = 0; kind < 6; ++kind) {
    SCOPED_TRACE(kind);
    ir::JobRequest request = Works::Request(2);
    if (kind == 0) request.fault_tolerance.elastic = ir::Elastic::kOff;
    if (kind == 1) request.fault_tolerance.enable = false;
    if (kind == 2) request.fault_tolerance.min_devices = 2;
    if (kind == 3) request = Works::Request(1, 2);
    if (kind == 4) {
      request.driver.kind = ir::DriverKind::kClient;
      request.checkpoint.enable = false;
    }
    if (kind == 5) {
      request = Works::Request(1, 2);
      request.fault_tolerance.elastic = ir::Elastic::kShrink;
    }
    Works works(2);
    works.Run(request);
    EXPECT_EQ(works.asked(), 0u);
    EXPECT_FALSE(works.Said("prepared"));
  }
}

TEST(ProgramsMadeAhead, AJobThatSaysHowLongItWaitsIsHeard) {
  Works works(2);
  ir::JobRequest request = Works::Request(2);
  request.fault_tolerance.max_wait_for_spare_s = 4;
  works.Run(request);
  works.Lose("w1");
  works.Work(3500);
  EXPECT_EQ(works.Info().state, JobState::kRecovering);
  works.Work(500);
  EXPECT_TRUE(works.Runs());
  EXPECT_EQ(works.Info().layout, "data=1");
  EXPECT_EQ(works.cluster.plans, 1);
}

TEST(ProgramsMadeAhead, OfLossesThatLeaveDifferentThingsThereAreSeveral) {
  Works works(3, {"a", "a", "b"});
  works.Run(Works::Request(3));
  ASSERT_EQ(works.asked(), 3u) << "one of two workers of a host, the only one, the host of two";
  std::vector<size_t> left;
  for (const MakePlanAhead& ahead : works.cluster.planned_ahead) {
    left.push_back(ahead.topology.devices.size());
  }
  EXPECT_THAT(left, UnorderedElementsAre(2, 2, 1));
  EXPECT_EQ(works.Count("prepared for the loss"), 1) << "and said once";
}

TEST(ProgramsMadeAhead, OneOfAHostIsTakenWhenAllOfItIsGone) {
  Works works(4, {"a", "a", "b", "b"});
  works.Run(Works::Request(4));
  ASSERT_EQ(works.asked(), 2u);
  works.cluster.Kill("w2");
  works.Lose("w3");
  works.Work(1000);
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_EQ(works.Info().layout, "data=2");
  EXPECT_EQ(works.cluster.plans, 1);
}

TEST(ProgramsMadeAhead, WhereMoreIsLostThanTheyAreForThePlannerIsAsked) {
  Works works(3);
  works.Run(Works::Request(3));
  ASSERT_EQ(works.asked(), 1u);
  works.cluster.Kill("w1");
  works.Lose("w2");
  works.Work(59'000);
  EXPECT_EQ(works.Info().state, JobState::kRecovering) << "as long as ever";
  works.Work(2000);
  EXPECT_TRUE(works.Runs());
  EXPECT_EQ(works.Info().layout, "data=1");
  EXPECT_EQ(works.cluster.plans, 2);
}

TEST(ProgramsMadeAhead, AreDroppedWithTheJobAndAreKeptFromTheBlobsThatAreCollected) {
  Works works(2);
  works.cluster.planned_graph = "digest";
  works.Run(Works::Request(2), 300);
  works.cluster.planned_graph = "ahead";
  works.Work(2000);
  EXPECT_THAT(works.cluster.core().BlobsInUse(), Contains("ahead"));
  EXPECT_THAT(works.cluster.core().BlobsInUse(), Contains("digest"));
  works.Lose("w1");
  ASSERT_EQ(works.Info().layout, "data=1");
  EXPECT_THAT(works.cluster.core().BlobsInUse(), Contains("digest")) << "it returns to this one";
  ASSERT_TRUE(works.cluster.Cancel(works.job).ok());
  works.Work(3000);
  EXPECT_THAT(works.cluster.core().BlobsInUse(), IsEmpty());
}

TEST(ProgramsMadeAhead, AnAnswerThatComesTooLateIsNothing) {
  Works works(2);
  works.Run(Works::Request(2), 300);
  works.cluster.hold_plans = true;
  works.Work(2000);
  ASSERT_EQ(works.asked(), 1u);
  ASSERT_TRUE(works.cluster.Pause(works.job).ok());
  works.Work(2000);
  ASSERT_EQ(works.Info().state, JobState::kPaused);
  works.cluster.planned_graph = "late";
  works.cluster.hold_plans = false;
  works.cluster.Settle();
  EXPECT_THAT(works.cluster.core().BlobsInUse(), Not(Contains("late")));
  ASSERT_TRUE(works.cluster.Resume(works.job).ok());
  works.Work(2000);
  EXPECT_EQ(works.asked(), 2u) << "the planner is free for others";
}

TEST(ProgramsMadeAhead, WithoutAPlanForWhatIsLeftTheJobIsNotPrepared) {
  Works works(2);
  works.cluster.plans_from = 2;
  works.Run(Works::Request(2));
  EXPECT_EQ(works.asked(), 1u);
  EXPECT_TRUE(works.Said("not prepared for the loss of a worker: no plan for so few"));
  EXPECT_EQ(works.Count("prepared for the loss"), 1);
  works.Work(2000);
  EXPECT_EQ(works.asked(), 1u) << "the same question, the same answer";
}

// ---- Fewer replicas -----------------------------------------------------------------------------

TEST(Shrink, KeepsAllDegreesButTheReplicas) {
  Works works(4);
  ir::JobRequest request = Works::Request(2, 2);
  request.train.global_batch = 8;
  request.fault_tolerance.elastic = ir::Elastic::kShrink;
  works.Run(request);
  ASSERT_EQ(works.asked(), 1u);
  const ir::JobRequest& planned = *works.cluster.planned_ahead[0].request;
  EXPECT_EQ(planned.parallel.data, 1);
  EXPECT_EQ(planned.parallel.tensor, 2);
  EXPECT_EQ(planned.parallel.microbatches, 2) << "of as many rows as before";
  EXPECT_EQ(planned.train.global_batch, 8);
  works.Lose("w3");
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_EQ(works.Info().layout, "data=2 microbatches=2");
}

TEST(Shrink, WithoutAProgramMadeAheadThePlannerIsAskedForTheSame) {
  Works works(3);
  ir::JobRequest request = Works::Request(3);
  request.train.global_batch = 6;
  request.fault_tolerance.elastic = ir::Elastic::kShrink;
  request.fault_tolerance.max_wait_for_spare_s = 1;
  works.Run(request, 300);
  ASSERT_EQ(works.asked(), 0u);
  works.Lose("w1");
  works.Work(2000);
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_EQ(works.cluster.plans, 2);
  EXPECT_EQ(works.Info().layout, "data=2 microbatches=3");
}

// ---- Back to the plan ---------------------------------------------------------------------------

TEST(Return, OnceItsDevicesAreBackAndTheRunHasWorkedForAWhile) {
  Works works(2);
  ir::JobRequest request = Works::Request(2);
  request.fault_tolerance.max_recoveries = 1;
  works.Run(request);
  works.Lose("w1");
  ASSERT_EQ(works.Info().layout, "data=1");
  works.cluster.AddWorker("w1", 1);
  works.Work(kWhileMs - 500);
  EXPECT_EQ(works.Info().layout, "data=1") << "not at once";
  works.Work(1500);
  EXPECT_TRUE(works.Runs());
  EXPECT_EQ(works.Info().layout, "data=2");
  EXPECT_EQ(works.cluster.plans, 1) << "by the plan that it had";
  EXPECT_TRUE(
      works.Said("returning to its plan: its state is saved first (there are devices for "
                 "data=2 again)"));
  EXPECT_TRUE(works.Said("moving: there are devices"));
  EXPECT_TRUE(works.Said(", 0 steps are run again"));
  EXPECT_TRUE(works.Said("moved in "));
  EXPECT_EQ(works.Count("recovering: "), 1) << "a return is none";
  works.Work(1000);
  works.Lose("w1");
  EXPECT_TRUE(proto::IsTerminal(works.Info().state)) << "of one recovery a day this is the second";
}

TEST(Return, WaitsAsLongAsSomebodyWaits) {
  Works works(2);
  works.Run(Works::Request(2));
  works.Lose("w1");
  ASSERT_EQ(works.Info().layout, "data=1");
  const int64_t waits = works.cluster.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 3)));
  works.Work(1000);
  works.cluster.AddWorker("w1", 1);
  works.Work(4 * kWhileMs);
  ASSERT_EQ(works.cluster.Info(waits).state, JobState::kQueued);
  EXPECT_EQ(works.Info().layout, "data=1") << "it would take a device that somebody waits for";
  ASSERT_TRUE(works.cluster.Cancel(waits).ok());
  works.Work(2000);
  EXPECT_EQ(works.Info().layout, "data=2");
}

TEST(Return, DevicesThatAreTakenMeanwhileLeaveItWhereItIs) {
  Works works(2);
  works.Run(Works::Request(2));
  works.Lose("w1");
  works.cluster.AddWorker("w1", 1);
  works.cluster.hold_writes = true;
  works.Work(kWhileMs + 500);
  ASSERT_EQ(works.Info().reason, "Returning");
  const int64_t other = works.cluster.Submit(SimCluster::MakeJob(1, 1, 1, 1'000'000));
  works.Work(500);
  ASSERT_EQ(works.cluster.Info(other).state, JobState::kRunning) << "who comes goes first";
  works.cluster.hold_writes = false;
  works.Work(1000);
  EXPECT_TRUE(works.Runs());
  EXPECT_EQ(works.Info().layout, "data=1");
  ASSERT_TRUE(works.cluster.Cancel(other).ok());
  works.Work(3 * kWhileMs);
  EXPECT_EQ(works.Info().layout, "data=2");
}

TEST(Return, AHostThatComesAndGoesDoesNotTakeItsJobWithIt) {
  Works works(2);
  ir::JobRequest request = Works::Request(2);
  request.fault_tolerance.max_recoveries = 1000;
  works.Run(request);
  for (int i = 0; i < 40; ++i) {
    works.Lose("w1");
    works.cluster.AddWorker("w1", 1);
    works.Work(kWhileMs + 1000);
  }
  // 160 s: after 3, 6, 12, 24, 48 s.
  EXPECT_LE(works.Count("moving: there are devices"), 6);
  EXPECT_GE(works.Count("moving: there are devices"), 2);
}

TEST(Return, AStateThatCannotBeSavedStaysWhereItIs) {
  Works works(2);
  works.Run(Works::Request(2));
  works.Lose("w1");
  works.cluster.AddWorker("w1", 1);
  works.cluster.fail_write["w0"] =
      proto::MakeError(proto::ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w0");
  works.Work(kWhileMs + 1000);
  EXPECT_TRUE(works.Said("not returned to its plan: its state could not be saved; it goes on"));
  EXPECT_EQ(works.Info().layout, "data=1");
  works.Work(3 * kWhileMs);
  EXPECT_EQ(works.Info().layout, "data=2") << "and tries again, after a longer while";
}

TEST(Return, OutlivesTheController) {
  Works works(2);
  works.cluster.workers_hold = true;
  works.Run(Works::Request(2));
  works.Lose("w1");
  ASSERT_EQ(works.Info().layout, "data=1");
  works.cluster.RestartController();
  works.cluster.Reconnect("w0");
  works.Work(1000);
  ASSERT_TRUE(works.Runs()) << works.Info().message;
  ASSERT_TRUE(works.Said("taken up"));
  works.cluster.AddWorker("w1", 1);
  works.Work(kWhileMs + 1000);
  EXPECT_EQ(works.Info().layout, "data=2");
  EXPECT_EQ(works.cluster.plans, 1);
}

TEST(Return, ARecoveryTakesThePlanThatThereIsRoomForAgain) {
  Works works(2);
  ir::JobRequest request = Works::Request(2);
  works.Run(request);
  works.Lose("w1");
  works.cluster.AddWorker("w1", 1);
  works.Work(500);
  works.cluster.fail_next["w0"] = proto::MakeError(
      proto::ErrorKind::kStepFailed, Unavailable("ECC").WithBlame(Blame::kInfra), "w0");
  works.Work(1000);
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_EQ(works.Info().layout, "data=2");
}

}  // namespace
}  // namespace meshwright::controller
