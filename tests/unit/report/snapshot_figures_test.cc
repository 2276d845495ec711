#include "report/snapshot_figures.h"

#include <gtest/gtest.h>

#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

SnapshotFigures FiguresFor(const std::vector<std::string>& overrides, int devices_per_worker) {
  const mesh::Topology topology = mesh::Topology::Local(2, devices_per_worker);
  const auto planned = PlanSmallJob(overrides, topology);
  EXPECT_TRUE(planned.has_value()) << planned.error();
  return SnapshotsOf(planned->plan(), topology, planned->prepared.request,
                     planned->forecast.step_s);
}

TEST(SnapshotFigures, AWorkerKeepsEachBoxOnce) {
  const std::vector<std::string> data = {
      "parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=1",
      "parallelism.pipeline_parallel_degree=1", "parallelism.zero_stage=0",
      "fault_tolerance.snapshot_every=3"};
  const SnapshotFigures together = FiguresFor(data, 2);
  const SnapshotFigures apart = FiguresFor(data, 1);
  EXPECT_GT(together.bytes, 0);
  EXPECT_EQ(together.bytes, apart.bytes) << "replicas on one worker are one";
  EXPECT_EQ(together.every, 3);
}

TEST(SnapshotFigures, WhoTakesNoneSaysSo) {
  const SnapshotFigures none = FiguresFor({"fault_tolerance.snapshot_every=0"}, 1);
  EXPECT_EQ(none.every, 0);
  EXPECT_EQ(FormatSnapshots(none, 1), "snapshots  none\n");
}

TEST(SnapshotFigures, AreShownWithTheirShareOfTheTime) {
  EXPECT_EQ(FormatSnapshots({1 << 20, 0.001, 4}, 0.02),
            "snapshots  2 x 1.00 MiB of host memory a worker, 1 ms every 4 steps, 1.2 % of the "
            "time\n");
  EXPECT_EQ(FormatSnapshots({1 << 20, 0, 1}, 0.02),
            "snapshots  2 x 1.00 MiB of host memory a worker\n");
}

}  // namespace
}  // namespace meshwright::report
