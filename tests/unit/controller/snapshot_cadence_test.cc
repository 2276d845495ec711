#include "controller/snapshot_cadence.h"

#include <gtest/gtest.h>

#include "controller/job_snapshots.h"
#include "controller/launches.h"

namespace meshwright::controller {
namespace {

proto::SnapshotTaken Taken(double seconds) { return {1, seconds, 100, {}}; }

TEST(SnapshotCadence, AFixedNumberOfSteps) {
  SnapshotCadence cadence(3, 0);
  EXPECT_EQ(cadence.Due(0), 3);
  EXPECT_EQ(cadence.Due(2), 3);
  cadence.Begin(3);
  EXPECT_EQ(cadence.Due(3), std::nullopt) << "one at a time";
  cadence.End(Taken(10), 0.1);
  EXPECT_EQ(cadence.Due(3), 6);
  EXPECT_EQ(cadence.Due(8), 9) << "one that is late comes as soon as it can";
}

TEST(SnapshotCadence, NeverAndFromAStart) {
  EXPECT_EQ(SnapshotCadence().Due(0), std::nullopt);
  EXPECT_EQ(SnapshotCadence(0, 0).Due(7), std::nullopt);
  EXPECT_EQ(SnapshotCadence(5, 40).Due(40), 45);
}

TEST(SnapshotCadence, ByCostItTakesAFiftiethOfTheTime) {
  SnapshotCadence cadence(-1, 0);
  EXPECT_EQ(cadence.Due(0), 1) << "it is measured first";
  cadence.Begin(1);
  cadence.End(Taken(0.01), 0.1);
  EXPECT_EQ(cadence.Due(1), 1 + 5) << "0.01 s of 5 x 0.1 s is a fiftieth";
  cadence.Begin(6);
  cadence.End(Taken(0.0021), 0.1);
  EXPECT_EQ(cadence.Due(6), 6 + 2) << "rounded up";
  cadence.Begin(8);
  cadence.End(Taken(0.5), 0.1);
  EXPECT_EQ(cadence.Due(8), 8 + 2) << "the best of the last three";
  cadence.Begin(10);
  cadence.End(Taken(0.0001), 0.1);
  EXPECT_EQ(cadence.Due(10), 11);
}

TEST(SnapshotCadence, OneThatFailedIsTheLast) {
  SnapshotCadence cadence(2, 0);
  cadence.Begin(2);
  proto::SnapshotTaken failed = Taken(1);
  failed.error = proto::MakeError(proto::ErrorKind::kSaveFailed, ResourceExhausted("memory"), "w");
  cadence.End(failed, 0.1);
  EXPECT_EQ(cadence.Due(2), std::nullopt);
}

// ---- In a schedule ----

ir::TrainSpec Training(int64_t steps, int64_t per_launch) {
  ir::TrainSpec train;
  train.steps = steps;
  train.steps_per_launch = per_launch;
  return train;
}

PlannedLaunch StepsOf(int64_t first, int64_t count, bool snapshot) {
  return {ir::kStepProgram, first, count, LaunchKind::kProgram, SaveCause::kInterval, snapshot};
}

TEST(LaunchScheduleWithSnapshots, ALaunchEndsWhereOneIsDue) {
  LaunchSchedule schedule(Training(9, 4), false);
  schedule.TakeSnapshots({3, 0});
  EXPECT_EQ(schedule.Next()->program, ir::kInitProgram);
  EXPECT_EQ(schedule.Next(), StepsOf(0, 3, true));
  EXPECT_EQ(schedule.Next(), StepsOf(3, 4, false)) << "the first one is not known to be whole";
  schedule.SnapshotEnded(Taken(1), 1);
  EXPECT_EQ(schedule.Next(), StepsOf(7, 1, true)) << "it was due at 6";
  schedule.SnapshotEnded(Taken(1), 1);
  EXPECT_EQ(schedule.Next(), StepsOf(8, 1, false));
}

TEST(LaunchScheduleWithSnapshots, ByCostNoLaunchIsCut) {
  LaunchSchedule schedule(Training(9, 4), false);
  schedule.TakeSnapshots({-1, 0});
  EXPECT_EQ(schedule.Next()->program, ir::kInitProgram);
  EXPECT_EQ(schedule.Next(), StepsOf(0, 4, true));
  schedule.SnapshotEnded(Taken(1), 10);  // five steps are to be between two
  EXPECT_EQ(schedule.Next(), StepsOf(4, 4, false));
  EXPECT_EQ(schedule.Next(), StepsOf(8, 1, true));
}

TEST(LaunchScheduleWithSnapshots, TheStateOfASnapshotIsSavedIfItsCheckpointIsDue) {
  ir::CheckpointSpec saves;
  saves.enable = true;
  saves.interval = 4;
  const ir::StartPoint in_memory{{}, 8, {}};
  LaunchSchedule schedule(Training(9, 1), false, saves, in_memory);
  EXPECT_EQ(schedule.Next()->kind, LaunchKind::kRestore);
  EXPECT_EQ(schedule.Next()->kind, LaunchKind::kSave);
  EXPECT_EQ(schedule.Next(), StepsOf(8, 1, false));
  // That of a checkpoint is there already.
  LaunchSchedule from_disk(Training(9, 1), false, saves, {{"", "a/step-00000008"}, 8, {}});
  EXPECT_EQ(from_disk.Next()->kind, LaunchKind::kRestore);
  EXPECT_EQ(from_disk.Next(), StepsOf(8, 1, false));
  // Behind the last step, too.
  LaunchSchedule last(Training(9, 1), false, saves, {{}, 9, {}});
  EXPECT_EQ(last.Next()->kind, LaunchKind::kRestore);
  EXPECT_FALSE(last.done());
  EXPECT_EQ(last.Next()->kind, LaunchKind::kSave);
}

TEST(TrainDriverWithSnapshots, AStepThatWasHeldIsToldWithItsValidation) {
  ir::JobRequest job;
  job.driver.kind = ir::DriverKind::kTrain;
  job.train = Training(6, 1);
  job.train.validate_every = 2;
  job.train.validation_batches = 1;
  job.train.sequence = 8;
  job.data.blob.size_bytes = 1 << 20;
  job.data.validation_fraction = 0.5;
  proto::StepMetrics held;
  held.step = 3;
  held.loss = 2;
  const auto driver = MakeDriver(job, {{}, 4, {}}, 3, held);
  ASSERT_EQ(driver->Held()->step, 3);
  EXPECT_EQ(driver->Next()->kind, LaunchKind::kRestore);
  const PlannedLaunch eval = *driver->Next();
  EXPECT_EQ(eval.program, ir::kEvalProgram);
  const DriverNews news = driver->On(eval, {{0, 0.1, {{"loss_sum", 6}, {"count", 2}}}});
  ASSERT_EQ(news.steps.size(), 1u);
  EXPECT_EQ(news.steps[0].step, 3);
  EXPECT_EQ(news.steps[0].validation_loss, 3);
  EXPECT_EQ(driver->Next()->first_step, 4);
  // From another step it is told when it is run again.
  EXPECT_FALSE(MakeDriver(job, {{}, 3, {}}, 3, held)->Held().has_value());
}

// ---- Who holds them ----

SnapshotHolder HolderNamed(const std::string& worker) { return {worker, worker + ":1", 1, {}}; }

TEST(JobSnapshots, AnswersAreAwaitedForAWhile) {
  JobSnapshots snapshots;
  EXPECT_TRUE(snapshots.Settled(0)) << "nobody was asked";
  const uint64_t first = snapshots.Ask({"w0", "w1", "w2"}, 1000);
  const uint64_t second = snapshots.Ask({"w0", "w1", "w2"}, 1000);
  snapshots.Answer(first, HolderNamed("w0"));
  EXPECT_TRUE(snapshots.holders().empty()) << "an answer to an earlier question";
  snapshots.Answer(second, HolderNamed("w0"));
  snapshots.Answer(second, HolderNamed("w9"));
  EXPECT_EQ(snapshots.holders().size(), 1u) << "nobody asked w9";
  EXPECT_FALSE(snapshots.Settled(1000));
  snapshots.Lose("w1");
  EXPECT_FALSE(snapshots.Settled(1000));
  EXPECT_TRUE(snapshots.Settled(1000 + JobSnapshots::kAnswerMs));
  snapshots.Answer(second, HolderNamed("w2"));
  EXPECT_TRUE(snapshots.Settled(1000));
  snapshots.Lose("w0");
  EXPECT_EQ(snapshots.holders().size(), 1u) << "its memory is gone";
}

TEST(JobSnapshots, ASnapshotIsOverWhenTheLastCopyIsThere) {
  JobSnapshots snapshots;
  EXPECT_FALSE(snapshots.Copied("w0", 4).has_value()) << "nobody waits for it";
  snapshots.AwaitCopies({{4, 0.5, 10, {}}, 0.25, {"w0", "w1"}});
  EXPECT_FALSE(snapshots.Copied("w0", 4).has_value());
  EXPECT_FALSE(snapshots.Copied("w1", 3).has_value()) << "of another one";
  const auto ended = snapshots.Copied("w1", 4);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->taken.step, 4);
  EXPECT_EQ(ended->step_seconds, 0.25);
  EXPECT_FALSE(snapshots.Copied("w1", 4).has_value()) << "once";
  EXPECT_TRUE(snapshots.Copies(MeshGeneration(2)));
  snapshots.GiveUpCopies(MeshGeneration(2));
  EXPECT_FALSE(snapshots.Copies(MeshGeneration(2)));
  EXPECT_TRUE(snapshots.Copies(MeshGeneration(3))) << "the next run tries again";
}

TEST(JobSnapshots, OldOnesAreDroppedOnceNewOnesAreWhole) {
  using Workers = std::set<std::string>;
  JobSnapshots snapshots;
  for (const char* worker : {"w0", "w1"}) snapshots.Add(worker, MeshGeneration(1));
  EXPECT_EQ(snapshots.NoteWhole(MeshGeneration(1), {"w0", "w1"}), Workers{}) << "nothing is older";
  for (const char* worker : {"w1", "w2"}) snapshots.Add(worker, MeshGeneration(2));
  EXPECT_EQ(snapshots.workers().size(), 3u) << "until then all may be needed";
  EXPECT_EQ(snapshots.NoteWhole(MeshGeneration(2), {"w1", "w2"}), (Workers{"w0", "w1"}));
  EXPECT_EQ(snapshots.NoteWhole(MeshGeneration(2), {"w1", "w2"}), Workers{});
  EXPECT_EQ(snapshots.workers(), (Workers{"w1", "w2"}));
}

}  // namespace
}  // namespace meshwright::controller
