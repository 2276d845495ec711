#include "controller/judge.h"

#include <gtest/gtest.h>

#include "controller/launches.h"

namespace meshwright::controller {
namespace {

proto::StepMetrics Validated(int64_t step, double loss, double accuracy = 0) {
  proto::StepMetrics metrics;
  metrics.step = step;
  metrics.validation_loss = loss;
  metrics.values["validation/accuracy"] = accuracy;
  return metrics;
}

ir::JobRequest JobWith(const std::string& keep_best, int64_t patience, const std::string& metric) {
  ir::JobRequest job;
  job.checkpoint.enable = true;
  job.checkpoint.keep_best = keep_best;
  job.train.early_stop_patience = patience;
  job.train.early_stop_metric = metric;
  return job;
}

TEST(Judge, TellsTheBestAndTheEnd) {
  Judge judge = *Judge::Of(JobWith("max:validation/accuracy", 2, "validation_loss"));
  const Verdict first = judge.Of(Validated(9, 2.0, 0.5));
  EXPECT_TRUE(first.best);
  EXPECT_FALSE(first.ends);
  EXPECT_FALSE(judge.Of(Validated(19, 1.0, 0.4)).best);
  EXPECT_TRUE(judge.Of(Validated(29, 1.5, 0.6)).best);
  EXPECT_TRUE(judge.Of(Validated(39, 1.0, 0.6)).ends) << "equal is not better";
}

TEST(Judge, JudgesAStepOnceMoreAsItWas) {
  Judge judge = *Judge::Of(JobWith("validation_loss", 1, "validation_loss"));
  judge.Of(Validated(9, 1.0));
  judge.Of(Validated(19, 2.0));
  Judge again = *Judge::Of(JobWith("validation_loss", 1, "validation_loss"));
  again.Remember(judge.standing());
  EXPECT_TRUE(again.Of(Validated(9, 1.0)).best);
  const Verdict last = again.Of(Validated(19, 2.0));
  EXPECT_FALSE(last.best);
  EXPECT_TRUE(last.ends);
}

TEST(Judge, IsThereOnlyWhereItIsAskedFor) {
  EXPECT_FALSE(Judge::Of(JobWith("", 0, "validation_loss")).has_value());
}

// Validations are waited for, the best is saved at its step, and the end comes at the next one.
TEST(Judge, TheScheduleWaitsForIt) {
  ir::TrainSpec train;
  train.steps = 100;
  train.validate_every = 2;
  train.validation_batches = 1;
  ir::CheckpointSpec checkpoint;
  checkpoint.enable = true;
  checkpoint.interval = 0;
  LaunchSchedule schedule(train, true, checkpoint);
  schedule.JudgeValidations();
  const auto next = [&] { return schedule.Next().value_or(PlannedLaunch{"none"}); };
  EXPECT_EQ(next().program, ir::kInitProgram);
  EXPECT_EQ(next().program, ir::kStepProgram);
  EXPECT_EQ(next().program, ir::kStepProgram);
  EXPECT_EQ(next().program, ir::kEvalProgram);
  EXPECT_EQ(next().program, "none") << "it is not judged yet";
  schedule.Judged(true, false);
  const PlannedLaunch save = next();
  EXPECT_EQ(save.kind, LaunchKind::kSave);
  EXPECT_EQ(save.cause, SaveCause::kBest);
  EXPECT_EQ(save.first_step, 2);
  schedule.SaveEnded(true);
  // Another save is under way when the next one is judged: no step goes by meanwhile.
  EXPECT_EQ(next().program, ir::kStepProgram);
  schedule.RequestSave(SaveCause::kAsked);
  EXPECT_EQ(next().first_step, 3) << "of the save";
  EXPECT_EQ(next().program, ir::kStepProgram);
  EXPECT_EQ(next().program, ir::kEvalProgram);
  schedule.Judged(true, false);
  EXPECT_EQ(next().program, "none") << "the best is not saved yet";
  schedule.SaveEnded(true);
  EXPECT_EQ(next().first_step, 4);
  schedule.SaveEnded(true);
  EXPECT_EQ(next().program, ir::kStepProgram);
  EXPECT_EQ(next().program, ir::kStepProgram);
  EXPECT_EQ(next().program, ir::kEvalProgram);
  EXPECT_FALSE(schedule.done());
  schedule.Judged(false, true);
  EXPECT_EQ(next().cause, SaveCause::kEnd);
  schedule.SaveEnded(true);
  EXPECT_TRUE(schedule.done());
}

}  // namespace
}  // namespace meshwright::controller
