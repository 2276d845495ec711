// Validations that end a job early and say which save is the best, also behind a lost worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Every validation of the played workers has the same loss: the first one stays the best.
ir::JobRequest JudgedJob() {
  ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 100);
  request.fault_tolerance.snapshot_every = 0;
  request.train.validate_every = 2;
  request.train.validation_batches = 1;
  request.train.early_stop_patience = 3;
  request.checkpoint.enable = true;
  request.checkpoint.interval = 3;
  request.checkpoint.keep_best = "validation_loss";
  return request;
}

TEST(CoreJudge, AJobEndsWellBehindValidationsWithoutABetterOne) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(JudgedJob());
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded) << cluster.Info(job).message;
  EXPECT_EQ(cluster.Info(job).steps_done, 8);
  EXPECT_THAT(cluster.steps(job), SizeIs(8));
  EXPECT_THAT(cluster.lines(job), Contains(HasSubstr("training ends early: 3 validations")));
  EXPECT_EQ(cluster.Record(job).checkpoint_step, 8);
}

TEST(CoreJudge, ALostWorkerChangesNeitherTheBestNorTheEnd) {
  for (const int64_t held : {3, 5, 7}) {
    SimCluster cluster;
    cluster.AddWorkers(3);
    cluster.hold_from = held;
    const int64_t job = cluster.Submit(JudgedJob());
    cluster.Settle();
    ASSERT_EQ(cluster.Info(job).state, JobState::kRunning) << held;
    cluster.hold_from = -1;
    cluster.Kill("w1");
    cluster.SettleFor(60'000);
    EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded) << cluster.Info(job).message;
    EXPECT_EQ(cluster.Info(job).steps_done, 8) << held;
    EXPECT_THAT(cluster.steps(job), SizeIs(8)) << held;
    EXPECT_THAT(cluster.lines(job), Contains(HasSubstr("no better than step 2"))) << held;
  }
}

}  // namespace
}  // namespace meshwright::controller
