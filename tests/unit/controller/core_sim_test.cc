// Random histories: jobs, cancels, kills, restarts, lost messages, disks that fail, in an order
// drawn from a seed. Every job reaches its end once the faults are over and there is room.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/seeds.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using proto::MakeError;

constexpr int kWorkers = 4;

// What has happened in histories.
struct Seen {
  int64_t commits = 0;
  int64_t restores = 0;
  int64_t from_memory = 0;
  int64_t recovered = 0;
  int64_t replanned = 0;
  int64_t resumed = 0;
  int64_t resumes = 0;
  int64_t moved = 0;
  int64_t preempted = 0;
};

// Seeds that once failed, and what they found.
constexpr struct {
  uint64_t seed;
  const char* found;
} kFormerFailures[] = {
    {2, "steps told twice by a controller that was restarted while a job recovered"},
    {9, "commits that nobody heard of pushed the checkpoint on record out of its folder"},
    {22, "with one checkpoint to keep, it was deleted before the next one was on record"},
    {1160, "a controller that was restarted knew nothing of the commits that nobody heard of"},
};

std::string RandomWorker(SimCluster& cluster) {
  return "w" + std::to_string(cluster.Draw(kWorkers));
}

void DrawRecovery(SimCluster& cluster, ir::JobRequest& job) {
  ir::FaultToleranceSpec& spec = job.fault_tolerance;
  spec.enable = cluster.Draw(5) != 0;
  spec.max_recoveries = cluster.Draw(4) == 0 ? 2 : 1000;
  spec.elastic = cluster.Draw(2) == 0 ? ir::Elastic::kOff : ir::Elastic::kReplan;
  spec.min_devices = 1 + cluster.Draw(2);
  spec.max_wait_for_spare_s = cluster.Draw(4);
  job.checkpoint.enable = cluster.Draw(2) == 0;
  job.checkpoint.interval = cluster.Draw(4);
  job.checkpoint.interval_s = cluster.Draw(3);
  job.checkpoint.keep_latest_k = cluster.Draw(3);
}

ir::JobRequest DrawJob(SimCluster& cluster) {
  ir::JobRequest job =
      SimCluster::MakeJob(cluster.Draw(3), 1 + cluster.Draw(2), 1, 1 + cluster.Draw(9));
  job.save_weights = cluster.Draw(2) == 0;
  job.train.validation_batches = cluster.Draw(3);
  job.train.validate_every = cluster.Draw(3);
  job.train.steps_per_launch = 1 + cluster.Draw(3);
  DrawRecovery(cluster, job);
  job.queue.priority = cluster.Draw(3) - 1;
  job.queue.preemptible = cluster.Draw(2) == 0;
  return job;
}

// Nothing is drawn, so that histories without snapshots stay what they were.
void SetSnapshots(bool any, ir::JobRequest& job) {
  constexpr int64_t kEvery[] = {0, 1, 2, -1};
  job.fault_tolerance.snapshot_every = any ? kEvery[(job.train.steps + job.parallel.data) % 4] : 0;
  job.fault_tolerance.copies = job.train.steps % 2;
}

// What a worker's step may fail with: a peer's death, its own fault, the machine's.
proto::RuntimeError DrawError(SimCluster& cluster, const std::string& worker) {
  switch (cluster.Draw(3)) {
    case 0:
      return MakeError(ErrorKind::kStepFailed, Unavailable("peer gone"), worker);
    case 1:
      return MakeError(ErrorKind::kStepFailed, Internal("kernel"), worker);
    default:
      return MakeError(ErrorKind::kInternal, Internal("ECC").WithBlame(Blame::kHardware), worker);
  }
}

void WorkerFault(SimCluster& cluster) {
  const std::string name = RandomWorker(cluster);
  if (cluster.worker(name).session.value() == 0) {
    return cluster.AddWorker(name, 1 + static_cast<int>(cluster.Draw(2)));
  }
  switch (cluster.Draw(cluster.workers_hold ? 8 : 5)) {
    case 5:
    case 6:
    case 7:
      return cluster.Flap(name);
    case 0:
      return cluster.Kill(name);
    case 1:
      return cluster.Crash(name);
    case 2:
      return cluster.Reconnect(name);
    case 3:
      return cluster.Leave(name, 5000 * cluster.Draw(3));
    case 4:
      if (cluster.Draw(3) == 0) cluster.Silence(name);
  }
}

void ReportedFault(SimCluster& cluster) {
  const std::string name = RandomWorker(cluster);
  switch (cluster.Draw(4)) {
    case 0:
      cluster.fail_next[name] = DrawError(cluster, name);
      return;
    case 1:
      cluster.fail_write[name] =
          MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"), name);
      return;
    case 2:
      cluster.hold_writes = cluster.Draw(3) == 0;
      return;
    case 3:
      cluster.plans_from = static_cast<size_t>(cluster.Draw(3));
      cluster.deaf_aborts = cluster.Draw(6) == 0;
  }
}

void RandomOrder(SimCluster& cluster) {
  constexpr proto::WorkerOrder kOrders[] = {proto::WorkerOrder::kCordon, proto::WorkerOrder::kDrain,
                                            proto::WorkerOrder::kEvict,
                                            proto::WorkerOrder::kUncordon};
  const auto order = kOrders[static_cast<size_t>(cluster.Draw(4))];
  (void)cluster.Order(RandomWorker(cluster), order, 1000 * (1 + cluster.Draw(4)));
}

void ControllerFault(SimCluster& cluster) {
  if (cluster.Draw(4) == 0) {
    cluster.RestartController();
    // Those that hold what they run come back; some do not.
    for (int i = 0; i < kWorkers && cluster.workers_hold; ++i) {
      if (cluster.Draw(6) != 0) cluster.Reconnect("w" + std::to_string(i));
    }
  }
  if (cluster.Draw(4) == 0) FailWrites(cluster.disk(), 1, ResourceExhausted("disk full"));
}

// What people ask of a job; much of it is refused.
void RandomWish(SimCluster& cluster, const std::vector<int64_t>& jobs) {
  const auto count = static_cast<int64_t>(jobs.size());
  if (count == 0) return;
  const int64_t job = jobs[static_cast<size_t>(cluster.Draw(count))];
  switch (cluster.Draw(4)) {
    case 0:
      (void)cluster.Cancel(job);
      return;
    case 1:
      (void)cluster.Resume(job);
      return;
    default:
      (void)cluster.Pause(job);
  }
}

void RandomFault(SimCluster& cluster, bool snapshots, std::vector<int64_t>& jobs) {
  switch (cluster.Draw(12)) {
    case 0:
    case 1: {
      ir::JobRequest job = DrawJob(cluster);
      SetSnapshots(snapshots, job);
      if (const int64_t id = cluster.Submit(job); id != 0) jobs.push_back(id);
      return;
    }
    case 2:
    case 10:
      return RandomWish(cluster, jobs);
    case 11:
      return RandomOrder(cluster);
    case 3:
      return ControllerFault(cluster);
    case 4:
    case 5:
      return ReportedFault(cluster);
    default:
      return WorkerFault(cluster);
  }
}

// The faults are over, and there is room for everyone.
void Heal(SimCluster& cluster, const std::vector<int64_t>& jobs) {
  cluster.fail_next.clear();
  cluster.fail_write.clear();
  cluster.hold_writes = false;
  cluster.deaf_aborts = false;
  cluster.plans_from = 0;
  FailWrites(cluster.disk(), 0, OkStatus());
  cluster.SettleFor(12'000);
  for (const proto::WorkerInfo& worker : cluster.core().Workers(Now{})) {
    if (worker.state != "READY" || worker.devices < 2) cluster.Kill(worker.name);
  }
  cluster.Settle();
  for (int i = 0; i < kWorkers; ++i) {
    const std::string name = "w" + std::to_string(i);
    if (cluster.worker(name).session.value() == 0) cluster.AddWorker(name, 2);
  }
  cluster.Settle();
  for (int i = 0; i < kWorkers; ++i) {
    const std::string name = "w" + std::to_string(i);
    EXPECT_TRUE(cluster.Order(name, proto::WorkerOrder::kUncordon).ok());
  }
  for (const int64_t job : jobs) (void)cluster.Resume(job);
  cluster.SettleFor(20'000);
}

void ExpectEnded(SimCluster& cluster, int64_t job) {
  const proto::JobInfo info = cluster.Info(job);
  EXPECT_TRUE(proto::IsTerminal(info.state))
      << "job " << job << " is " << proto::JobStateName(info.state) << " " << info.message;
  if (info.state == JobState::kFailed) {
    EXPECT_FALSE(info.reason.empty());
    EXPECT_FALSE(info.message.empty());
  }
  if (info.state != JobState::kSucceeded) return;
  // That none came twice, and all in order, the cluster has seen.
  EXPECT_EQ(static_cast<int64_t>(cluster.steps(job).size()), info.steps) << "job " << job;
}

void Add(SimCluster& cluster, int64_t job, Seen& seen) {
  for (const std::string& line : cluster.lines(job)) {
    if (line.starts_with("recovered in ")) ++seen.recovered;
    if (line.starts_with("resumed")) ++seen.resumed;
    if (line.starts_with("moving: worker") || line.starts_with("moving: drained")) ++seen.moved;
    if (line.starts_with("queued again after")) ++seen.preempted;
    if (line.find("planning anew") != std::string::npos) ++seen.replanned;
  }
}

void RunHistory(uint64_t seed, bool snapshots, bool holds, Seen& seen) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  CoreOptions options = SimCluster::DefaultOptions();
  options.save_deadline_ms = 4000;
  options.release_deadline_ms = 8000;
  if (holds) options.resume_ms = 1000;
  SimCluster cluster(options, seed);
  cluster.workers_hold = holds;
  cluster.shared_root = seed % 5 != 3;
  std::vector<int64_t> jobs;
  for (int i = 0; i < kWorkers; ++i) cluster.AddWorker("w" + std::to_string(i), 1);
  for (int round = 0; round < 60 && !::testing::Test::HasFailure(); ++round) {
    RandomFault(cluster, snapshots, jobs);
    for (int64_t n = cluster.Draw(40); n > 0 && cluster.DeliverOne(); --n) {
    }
    if (cluster.Draw(3) == 0) cluster.Advance(100 * (1 + cluster.Draw(30)));
  }
  if (::testing::Test::HasFailure()) return;
  Heal(cluster, jobs);
  for (const int64_t job : jobs) ExpectEnded(cluster, job);
  for (const int64_t job : jobs) Add(cluster, job, seen);
  seen.commits += cluster.states().commits();
  seen.restores += cluster.states().restores();
  seen.from_memory += cluster.states().snapshot_restores();
  seen.resumes += cluster.resumes;
  for (const auto& worker : cluster.core().Workers(Now{})) {
    EXPECT_EQ(worker.busy_devices, 0) << worker.name;
  }
}

TEST(CoreSimulation, HistoriesThatOnceFailedHold) {
  for (const auto& [seed, found] : kFormerFailures) {
    SCOPED_TRACE(found);
    Seen seen;
    RunHistory(seed, /*snapshots=*/false, /*holds=*/false, seen);
  }
}

TEST(CoreSimulation, HoldsItsInvariantsInRandomHistories) {
  const Seeds seeds = SeedsOf(400, 20);
  Seen seen;
  for (uint64_t seed = seeds.first; seed <= seeds.last && !HasFailure(); ++seed) {
    RunHistory(seed, /*snapshots=*/seed % 2 == 0, /*holds=*/false, seen);
  }
  if (seeds.count() < 40) return;
  // Histories in which nothing happens hold, too.
  const auto least = static_cast<int64_t>(seeds.count() / 4);
  EXPECT_GT(seen.commits, least);
  EXPECT_GT(seen.restores, least / 2);
  EXPECT_GT(seen.from_memory, least);
  EXPECT_GT(seen.recovered, least);
  EXPECT_GT(seen.replanned, least);
  EXPECT_GT(seen.resumed, least);
  EXPECT_GT(seen.moved, least / 4);
  EXPECT_GT(seen.preempted, least / 10);
}

// The same, of workers that hold what they run while the controller is dead or a session broken.
TEST(CoreSimulation, HoldsItsInvariantsWhereWorkersHoldTheirMeshes) {
  constexpr uint64_t kHistories = kSanitizedBuild ? 40 : 400;
  Seen seen;
  for (uint64_t seed = 10'001; seed <= 10'000 + kHistories && !HasFailure(); ++seed) {
    RunHistory(seed, /*snapshots=*/seed % 2 == 0, /*holds=*/true, seen);
  }
  constexpr auto kLeast = static_cast<int64_t>(kHistories / 4);
  EXPECT_GT(seen.commits, kLeast);
  EXPECT_GT(seen.resumes, kLeast);
  EXPECT_GT(seen.recovered, kLeast);
}

}  // namespace
}  // namespace meshwright::controller
