// What the controller takes upon itself with a job: tries that may end it, memory, ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::HasSubstr;

void ExpectGivenUp(SimCluster& cluster, int64_t job) {
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_EQ(info.state, JobState::kFailed);
  EXPECT_EQ(info.reason, "PlanFailed");
  EXPECT_THAT(info.message, HasSubstr("the controller ended 3 times"));
}

// A job whose planning ends the controller's process, at every start anew.
TEST(Core, AJobThatKillsThePlannerIsQueuedAgainTwiceAndThenFails) {
  SimCluster cluster;
  cluster.hold_plans = true;
  const int64_t poison = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2));
  const int64_t sound = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2));
  for (int death = 0; death < 3; ++death) {
    ASSERT_EQ(cluster.Info(poison).state, JobState::kQueued) << death;
    cluster.AddWorkers(1);
    ASSERT_EQ(cluster.Info(poison).state, JobState::kPlanning) << death;
    cluster.RestartController();
  }
  ExpectGivenUp(cluster, poison);
  cluster.hold_plans = false;
  cluster.AddWorkers(1);
  EXPECT_EQ(cluster.Info(sound).state, JobState::kSucceeded);
}

TEST(Core, AJobThatCannotBePlacedAliveIsQueuedAgainTwiceAndThenFails) {
  SimCluster cluster;
  cluster.dies_placing = true;
  const int64_t poison = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2));
  for (int death = 0; death < 3; ++death) {
    ASSERT_EQ(cluster.Info(poison).state, JobState::kQueued) << death;
    cluster.RestartController();
  }
  ExpectGivenUp(cluster, poison);
  cluster.dies_placing = false;
  cluster.AddWorkers(1);
  const int64_t sound = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(sound).state, JobState::kSucceeded);
}

// What waits, is planned anew or has been planned is not to blame for the controller's end.
TEST(Core, ATryThatCameToAnEndIsNotCounted) {
  SimCluster cluster;
  const int64_t waits = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 2));
  for (int death = 0; death < 5; ++death) {
    cluster.AddWorkers(1);
    ASSERT_EQ(cluster.Info(waits).state, JobState::kQueued);
    cluster.RestartController();
  }
  cluster.hold_plans = true;
  for (int i = 0; i < 5; ++i) {
    cluster.AddWorkers(2);
    ASSERT_EQ(cluster.Info(waits).state, JobState::kPlanning);
    cluster.Kill("w1");
    while (cluster.DeliverOne()) {
    }
    ASSERT_EQ(cluster.Info(waits).state, JobState::kQueued);
  }
  cluster.RestartController();
  EXPECT_EQ(cluster.Info(waits).state, JobState::kQueued);
  for (int stop = 0; stop < 5; ++stop) {
    cluster.AddWorkers(2);
    ASSERT_EQ(cluster.Info(waits).state, JobState::kPlanning);
    cluster.Feed(Shutdown{});
    cluster.RestartController();
    ASSERT_EQ(cluster.Info(waits).state, JobState::kQueued) << cluster.Info(waits).message;
  }
}

TEST(Core, RequestsOfJobsThatHaveNotEndedAreBounded) {
  CoreOptions options = SimCluster::DefaultOptions();
  ir::JobRequest job = SimCluster::MakeJob(1, 1, 1, 2);
  job.config_text = std::string(1000, '#');
  options.max_request_bytes = 4200;
  SimCluster cluster(options);
  const int64_t first = cluster.Submit(job);
  ASSERT_NE(cluster.Submit(job), 0);
  EXPECT_EQ(cluster.Submit(job), 0) << "three are too much";
  cluster.RestartController();
  EXPECT_EQ(cluster.Submit(job), 0) << "what is restored counts";
  EXPECT_TRUE(cluster.Cancel(first).ok());
  EXPECT_NE(cluster.Submit(job), 0) << "what has ended does not";
}

TEST(Core, IdsBeginBehindTheFoldersThatAreThere) {
  CoreOptions options = SimCluster::DefaultOptions();
  options.first_job = 42;
  SimCluster cluster(options);
  EXPECT_EQ(cluster.Submit(SimCluster::MakeJob(1, 1, 1, 2)), 42);
}

}  // namespace
}  // namespace meshwright::controller
