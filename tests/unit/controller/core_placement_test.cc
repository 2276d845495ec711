// Where the core puts the ranks of a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

TEST(CorePlacement, RanksAreWhereThePlanPlacesThem) {
  SimCluster cluster;
  cluster.AddWorkers(4);
  cluster.planned_devices = 2;
  cluster.planned_placement = {3, 1};
  cluster.hold_reports = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  std::vector<int> busy;
  for (const auto& worker : cluster.core().Workers(Now{})) busy.push_back(worker.busy_devices);
  EXPECT_EQ(busy, (std::vector<int>{0, 1, 0, 1}));
}

TEST(CorePlacement, APlacementOnDevicesThatWereNotReservedFails) {
  for (const std::vector<int>& placement : {std::vector<int>{0, 0}, {0, 4}, {-1, 0}, {0}}) {
    SimCluster cluster;
    cluster.AddWorkers(4);
    cluster.planned_devices = 2;
    cluster.planned_placement = placement;
    const int64_t job = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
    cluster.Settle();
    EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
    EXPECT_THAT(cluster.Info(job).message, HasSubstr("not reserved"));
  }
}

// Else a job that follows another is planned for what happens to be free at that moment.
TEST(CorePlacement, AJobThatTakesEveryDeviceWaitsForThoseThatAreLetGo) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_reports = true;
  cluster.deaf_aborts = true;
  const int64_t first = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  EXPECT_TRUE(cluster.Cancel(first).ok());
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.Info(first).state, JobState::kCancelled);
  cluster.hold_reports = false;
  const int64_t open = cluster.Submit(SimCluster::MakeJob(0, 1, 1, 3));
  cluster.Settle();
  EXPECT_EQ(cluster.Info(open).state, JobState::kQueued);
  EXPECT_THAT(cluster.Info(open).message, HasSubstr("waits for 1"));
  cluster.FeedFrom("w0", proto::MeshReleased{MeshGeneration(1)});
  cluster.Settle();
  EXPECT_EQ(cluster.Info(open).state, JobState::kSucceeded);
  EXPECT_THAT(cluster.Info(open).layout, HasSubstr("data=2"));
}

}  // namespace
}  // namespace meshwright::controller
