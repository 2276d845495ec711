// Random histories: jobs, cancels, kills, restarts and lost messages in an order drawn from a seed.
#include <gtest/gtest.h>

#include <string>

#include "tests/scale.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;

void RandomFault(SimCluster& cluster, std::vector<int64_t>& jobs) {
  const std::string name = "w" + std::to_string(cluster.Draw(4));
  const bool connected = cluster.worker(name).session.value() != 0;
  switch (cluster.Draw(9)) {
    case 0:
    case 1: {
      ir::JobRequest job =
          SimCluster::MakeJob(cluster.Draw(3), 1 + cluster.Draw(2), 1, 1 + cluster.Draw(6));
      job.save_weights = cluster.Draw(2) == 0;
      job.train.validation_batches = cluster.Draw(3);
      job.train.validate_every = cluster.Draw(3);
      if (const int64_t id = cluster.Submit(job); id != 0) jobs.push_back(id);
      break;
    }
    case 2:
      if (!jobs.empty()) {
        (void)cluster.Cancel(
            jobs[static_cast<size_t>(cluster.Draw(static_cast<int64_t>(jobs.size())))]);
      }
      break;
    case 3:
      if (connected) cluster.Kill(name);
      break;
    case 4:
      if (!connected) cluster.AddWorker(name, 1 + static_cast<int>(cluster.Draw(2)));
      break;
    case 5:
      if (connected) cluster.Reconnect(name);
      break;
    case 6:
      cluster.fail_next[name] = proto::MakeError(
          proto::ErrorKind::kStepFailed,
          cluster.Draw(2) == 0 ? Unavailable("peer gone") : Internal("kernel"), name);
      break;
    case 7:
      if (connected && cluster.Draw(4) == 0) cluster.Silence(name);
      break;
    case 8:
      if (cluster.Draw(4) == 0) cluster.RestartController();
      if (cluster.Draw(4) == 0) FailWrites(cluster.disk(), 1, ResourceExhausted("disk full"));
      break;
  }
}

TEST(CoreSimulation, HoldsItsInvariantsInRandomHistories) {
  constexpr uint64_t kHistories = kSanitizedBuild ? 40 : 300;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimCluster cluster(SimCluster::DefaultOptions(), seed);
    std::vector<int64_t> jobs;
    for (int i = 0; i < 4; ++i) cluster.AddWorker("w" + std::to_string(i), 1);
    for (int round = 0; round < 60; ++round) {
      RandomFault(cluster, jobs);
      for (int64_t n = cluster.Draw(20); n > 0 && cluster.DeliverOne(); --n) {
      }
      if (cluster.Draw(3) == 0) cluster.Advance(100 * (1 + cluster.Draw(30)));
      if (::testing::Test::HasFailure()) return;
    }
    // With the faults over and enough workers, every job reaches its end.
    cluster.fail_next.clear();
    FailWrites(cluster.disk(), 0, OkStatus());
    cluster.SettleFor(12'000);
    for (int i = 0; i < 4; ++i) {
      const std::string name = "w" + std::to_string(i);
      if (cluster.worker(name).session.value() == 0) cluster.AddWorker(name, 2);
    }
    cluster.SettleFor(20'000);
    for (int64_t job : jobs) {
      const proto::JobInfo info = cluster.Info(job);
      EXPECT_TRUE(proto::IsTerminal(info.state))
          << "job " << job << " is " << proto::JobStateName(info.state) << " " << info.message;
      if (info.state == JobState::kFailed) {
        EXPECT_FALSE(info.reason.empty());
        EXPECT_FALSE(info.message.empty());
      }
      if (info.state == JobState::kSucceeded) {
        // No step is missing, none came twice.
        const auto& steps = cluster.steps(job);
        ASSERT_EQ(static_cast<int64_t>(steps.size()), info.steps);
        for (size_t i = 0; i < steps.size(); ++i) {
          EXPECT_EQ(steps[i].step, static_cast<int64_t>(i));
        }
      }
    }
    for (const auto& worker : cluster.core().Workers(Now{})) {
      EXPECT_EQ(worker.busy_devices, 0) << worker.name;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace meshwright::controller
