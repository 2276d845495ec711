// Jobs that keep no checkpoints are moved and give way all the same: behind a snapshot of their
// last step, in the memory of workers. That what is restored is whole, and that no step is told
// twice, the simulated cluster checks in all of them. Each worker has a part of the state that
// nobody else has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/works.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using proto::WorkerOrder;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

ir::JobRequest Unsaved(int64_t data, int64_t copies = 1, int64_t every = -1) {
  ir::JobRequest request = SimCluster::MakeJob(data, 1, 1, 1'000'000);
  request.fault_tolerance.snapshot_every = every;
  request.fault_tolerance.copies = copies;
  return request;
}

void ExpectMovedWithoutLoss(Works& works) {
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_EQ(works.Count("goes on from the snapshot of step"), 1);
  EXPECT_EQ(works.Count(", 0 steps are run again"), 1);
  EXPECT_TRUE(works.Said("moved in "));
  EXPECT_EQ(works.cluster.states().causes().size(), 0u) << "nothing was written";
}

TEST(Moves, ADrainedWorkersJobGoesOnFromTheStepWhereItWas) {
  for (const int64_t copies : {0, 1}) {
    for (const int64_t every : {-1, 1, 7}) {
      SCOPED_TRACE(::testing::Message() << copies << " copies, every " << every);
      Works works(3);
      works.Run(Unsaved(2, copies, every), 1000);
      ASSERT_THAT(works.MembersOfLastMesh(), UnorderedElementsAre("w0", "w1"));
      ASSERT_TRUE(works.cluster.Order("w1", WorkerOrder::kDrain).ok());
      EXPECT_TRUE(works.Said("moving: its state is kept in memory first (drained by an operator)"));
      works.Work(2000);
      EXPECT_THAT(works.MembersOfLastMesh(), UnorderedElementsAre("w0", "w2"));
      ExpectMovedWithoutLoss(works);
      EXPECT_EQ(works.cluster.core().WorkerCounts().at("DRAINED"), 1);
    }
  }
}

TEST(Moves, OfAJobOfOneWorkerWhichNobodyHasACopyOf) {
  Works works(2);
  works.Run(Unsaved(1), 1000);
  works.cluster.Leave("w0", 60'000);
  works.Work(2000);
  EXPECT_THAT(works.MembersOfLastMesh(), ElementsAre("w1"));
  ExpectMovedWithoutLoss(works);
  EXPECT_TRUE(works.cluster.worker("w0").drained);
}

TEST(Moves, AWorkerStaysUntilTheNextRunHasReadItsMemory) {
  Works works(2);
  works.Run(Unsaved(1, /*copies=*/0), 1000);
  works.cluster.Leave("w0", 60'000);
  while (works.Count("goes on from the snapshot") == 0) {
    ASSERT_TRUE(works.cluster.DeliverOne());
    ASSERT_FALSE(works.cluster.worker("w0").drained);
  }
  const int64_t restores = works.cluster.states().snapshot_restores();
  while (!works.cluster.worker("w0").drained) {
    ASSERT_TRUE(works.cluster.DeliverOne());
  }
  EXPECT_GT(works.cluster.states().snapshot_restores(), restores);
  works.Work(1000);
  ExpectMovedWithoutLoss(works);
}

// What it holds is with another worker, too: it goes at once, and its memory with it.
TEST(Moves, WhoIsLetGoIsNotReadFrom) {
  for (const int64_t every : {-1, 1, 7}) {
    SCOPED_TRACE(every);
    Works works(2);
    ir::JobRequest request = Unsaved(2, /*copies=*/1, every);
    request.fault_tolerance.elastic = ir::Elastic::kOff;
    works.Run(request, 1000);
    works.cluster.Leave("w1", 60'000);
    works.Work(2000);
    EXPECT_TRUE(works.cluster.worker("w1").drained);
    works.cluster.AddWorker("w2", 1);  // while the session of the other still stands
    works.Work(2000);
    ExpectMovedWithoutLoss(works);
  }
}

TEST(Moves, WithNowhereToGoAWorkerStaysUntilItsDeadlineUnlessOthersHaveItAll) {
  for (const int64_t copies : {0, 1}) {
    SCOPED_TRACE(copies);
    Works works(2);
    ir::JobRequest request = Unsaved(2, copies);
    request.fault_tolerance.elastic = ir::Elastic::kOff;
    works.Run(request, 1000);
    works.cluster.Leave("w1", 20'000);
    works.Work(10'000);
    EXPECT_EQ(works.cluster.worker("w1").drained, copies == 1);
    works.Work(11'000);
    EXPECT_TRUE(works.cluster.worker("w1").drained);
    works.Lose("w1");
    works.cluster.AddWorker("w2", 1);
    works.Work(1000);
    EXPECT_TRUE(works.Runs());
    EXPECT_EQ(works.Said("goes on from the snapshot"), true);
    EXPECT_EQ(works.Said("goes on from the beginning"), copies == 0) << "what it held is gone";
  }
}

TEST(Moves, ALastStepThatHangsIsEndedAtTheDeadline) {
  Works works(2);
  works.Run(Unsaved(1), 1000);
  works.cluster.hold_from = works.Info().steps_done + 20;
  works.Work(1000);
  ASSERT_TRUE(works.cluster.Order("w0", WorkerOrder::kDrain, 5000).ok());
  works.Work(4000);
  EXPECT_EQ(works.cluster.core().WorkerCounts().at("DRAINING"), 1);
  works.cluster.hold_from = -1;
  works.Work(2000);
  EXPECT_EQ(works.cluster.core().WorkerCounts().at("DRAINED"), 1);
  EXPECT_TRUE(works.Runs());
}

TEST(Moves, WithoutMemoryForSnapshotsItIsMovedWithWhatThereIs) {
  Works works(2);
  works.cluster.no_memory = {"w0"};
  works.Run(Unsaved(1), 1000);
  works.cluster.Leave("w0", 60'000);
  works.Work(2000);
  EXPECT_TRUE(works.cluster.worker("w0").drained) << "nobody waits for what cannot be";
  EXPECT_TRUE(works.Runs());
  EXPECT_TRUE(works.Said("goes on from the beginning"));
}

TEST(Moves, AValidationThatIsDueGoesBeforeTheHalt) {
  Works works(2);
  ir::JobRequest request = Unsaved(1);
  request.train.validation_batches = 2;
  request.train.validate_every = 1;
  works.Run(request, 1000);
  works.cluster.Leave("w0", 60'000);
  works.Work(2000);
  ExpectMovedWithoutLoss(works);
}

TEST(Moves, AJobReturnsToItsPlanBehindASnapshot) {
  Works works(2);
  works.Run(Unsaved(2));
  works.Lose("w1");
  ASSERT_EQ(works.Info().layout, "data=1");
  works.cluster.AddWorker("w1", 1);
  works.Work(kWhileMs + 2000);
  EXPECT_EQ(works.Info().layout, "data=2");
  EXPECT_TRUE(works.Said("returning to its plan: its state is kept in memory first"));
  EXPECT_EQ(works.Count(", 0 steps are run again"), 1);
}

TEST(Moves, AJobGivesWayAndGoesOnWhereItWasHoweverLongItWaits) {
  Works works(1);
  ir::JobRequest request = Unsaved(1);
  request.queue.preemptible = true;
  works.Run(request, 1000);
  ir::JobRequest urgent = SimCluster::MakeJob(1, 1, 1, 1'000'000);
  urgent.queue.priority = 5;
  const int64_t other = works.cluster.Submit(urgent);
  works.Work(2000);
  ASSERT_EQ(works.cluster.Info(other).state, JobState::kRunning);
  EXPECT_EQ(works.Info().state, JobState::kRecovering);
  EXPECT_TRUE(works.Said("giving way: its state is kept in memory first"));
  const int64_t done = works.Info().steps_done;
  works.Work(300'000);
  EXPECT_EQ(works.Info().steps_done, done);
  const auto sent = works.cluster.core().MessageCounts(JobId(works.job));
  EXPECT_GE(sent.at("QuerySnapshots"), 3) << "so that its worker does not think that it is over";
  ASSERT_TRUE(works.cluster.Cancel(other).ok());
  works.Work(2000);
  EXPECT_TRUE(works.Runs()) << works.Info().message;
  EXPECT_GT(works.Info().steps_done, done);
  EXPECT_EQ(works.Count(", 0 steps are run again"), 1);
}

TEST(Moves, OneThatGaveWayIsCancelledAndLeavesNothingBehind) {
  Works works(1);
  ir::JobRequest request = Unsaved(1);
  request.queue.preemptible = true;
  works.Run(request, 1000);
  ir::JobRequest urgent = SimCluster::MakeJob(1, 1, 1, 1'000'000);
  urgent.queue.priority = 5;
  urgent.fault_tolerance.snapshot_every = 0;
  (void)works.cluster.Submit(urgent);
  works.Work(2000);
  ASSERT_EQ(works.Info().state, JobState::kRecovering);
  ASSERT_TRUE(works.cluster.Cancel(works.job).ok());
  works.Work(1000);
  EXPECT_EQ(works.Info().state, JobState::kCancelled);
  EXPECT_EQ(works.cluster.states().snapshots(), 0u);
}

TEST(Moves, AStandingOrderIsCarriedOutByTheNextController) {
  Works works(3);
  works.cluster.workers_hold = true;
  works.Run(Unsaved(2), 1000);
  ASSERT_TRUE(works.cluster.Order("w1", WorkerOrder::kDrain).ok());
  works.cluster.RestartController();
  for (const char* worker : {"w0", "w1", "w2"}) works.cluster.Reconnect(worker);
  works.Work(3000);
  EXPECT_THAT(works.MembersOfLastMesh(), UnorderedElementsAre("w0", "w2"));
  EXPECT_EQ(works.cluster.core().WorkerCounts().at("DRAINED"), 1);
  ExpectMovedWithoutLoss(works);
}

}  // namespace
}  // namespace meshwright::controller
