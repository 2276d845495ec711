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

}  // namespace
}  // namespace meshwright::controller
