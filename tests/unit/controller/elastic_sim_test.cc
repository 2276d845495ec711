// Random histories of jobs that go on with fewer devices, are moved, give way and return to their
// plans, while workers come and go and short jobs want devices. That no step is left out and none
// told twice, the cluster checks; here, that nobody waits for devices that a job has returned to,
// and that all jobs have their plans again once everyone is back.
#include <gtest/gtest.h>

#include <set>

#include "tests/seeds.h"
#include "tests/unit/controller/works.h"

namespace meshwright::controller {
namespace {

using proto::JobState;

constexpr int kElasticWorkers = 4;

struct ElasticSeen {
  int64_t ahead = 0;
  int64_t replanned = 0;
  int64_t returned = 0;
  int64_t moved = 0;
  int64_t gave_way = 0;
  int64_t from_memory = 0;
};

class ElasticHistory {
 public:
  explicit ElasticHistory(uint64_t seed) : cluster_(Options(), seed) {
    cluster_.workers_hold = true;
    for (int i = 0; i < kElasticWorkers; ++i) cluster_.AddWorker(Name(i), 1);
    cluster_.Settle();
  }

  void Run() {
    // Together they are as many devices as there are.
    Submit(2);
    Submit(cluster_.Draw(2) == 0 ? 2 : 1);
    for (int round = 0; round < 25 && !::testing::Test::HasFailure(); ++round) {
      Disturb();
      Work(100 * (1 + cluster_.Draw(20)), 12);
    }
  }

  // Everyone comes back, and nobody else wants anything.
  void Heal() {
    for (int i = 0; i < kElasticWorkers; ++i) {
      const bool leaves = cluster_.worker(Name(i)).drained || left_.contains(Name(i));
      if (leaves) cluster_.Kill(Name(i));
      Work(100, 12);
    }
    Work(3000, 12);
    for (int i = 0; i < kElasticWorkers; ++i) {
      if (cluster_.worker(Name(i)).session.value() == 0) cluster_.AddWorker(Name(i), 1);
      Work(300, 12);
      EXPECT_TRUE(cluster_.Order(Name(i), proto::WorkerOrder::kUncordon).ok() ||
                  ::testing::Test::HasFailure());
      Work(300, 12);
    }
    for (const int64_t job : short_jobs_) (void)cluster_.Cancel(job);
    // As long as the longest while that a job works before it returns.
    Work(70'000, 12);
  }

  void ExpectAllHaveTheirPlans() {
    for (const auto& [job, devices] : jobs_) {
      const proto::JobInfo info = cluster_.Info(job);
      EXPECT_EQ(info.state, JobState::kRunning) << "job " << job << ": " << info.message;
      EXPECT_EQ(info.layout.substr(0, 6), "data=" + std::to_string(devices)) << "job " << job;
    }
  }

  void Count(ElasticSeen& seen) {
    for (const auto& [job, devices] : jobs_) {
      for (const std::string& line : cluster_.lines(job)) {
        if (line.find("by the program made ahead") != std::string::npos) ++seen.ahead;
        if (line.find("planning anew") != std::string::npos) ++seen.replanned;
        if (line.starts_with("moving: there are devices")) ++seen.returned;
        if (line.starts_with("moving: worker") || line.starts_with("moving: drained")) ++seen.moved;
        if (line.starts_with("queued again after")) ++seen.gave_way;
      }
    }
    seen.from_memory += cluster_.states().snapshot_restores();
  }

 private:
  static CoreOptions Options() {
    CoreOptions options = Works::Options();
    options.return_after_ms = 500;
    options.resume_ms = 1000;
    options.infeasible_grace_ms = 1'000'000;  // nobody gives up
    return options;
  }
  static std::string Name(int worker) { return "w" + std::to_string(worker); }

  void Submit(int64_t devices) {
    ir::JobRequest job = SimCluster::MakeJob(devices, 1, 1, 1'000'000);
    ir::FaultToleranceSpec& spec = job.fault_tolerance;
    spec.elastic = ir::kElastics[cluster_.Draw(3)];
    spec.max_wait_for_spare_s = cluster_.Draw(3) - 1;
    spec.max_recoveries = 1'000'000;
    spec.copies = cluster_.Draw(2);
    spec.snapshot_every = cluster_.Draw(2) == 0 ? -1 : 1 + cluster_.Draw(4);
    job.checkpoint.enable = cluster_.Draw(2) == 0;
    job.checkpoint.interval = 0;
    job.queue.preemptible = cluster_.Draw(2) == 0;
    jobs_[cluster_.Submit(job)] = devices;
  }

  void Disturb() {
    const std::string name = Name(static_cast<int>(cluster_.Draw(kElasticWorkers)));
    const bool there = cluster_.worker(name).session.value() != 0;
    switch (cluster_.Draw(8)) {
      case 0: {
        ir::JobRequest job = SimCluster::MakeJob(1 + cluster_.Draw(2), 1, 1, 20);
        job.queue.priority = cluster_.Draw(3) * 2;
        short_jobs_.push_back(cluster_.Submit(job));
        return;
      }
      case 1:
        cluster_.Leave(name, 1000 * (1 + cluster_.Draw(10)));
        left_.insert(name);
        return;
      case 2:
        (void)cluster_.Order(name, proto::WorkerOrder::kDrain, 1000 * (1 + cluster_.Draw(10)));
        return;
      case 3:
        (void)cluster_.Order(name, proto::WorkerOrder::kUncordon);
        return;
      case 4:
        if (cluster_.Draw(3) != 0) return;
        cluster_.RestartController();
        for (int i = 0; i < kElasticWorkers; ++i) {
          if (cluster_.worker(Name(i)).session.value() != 0) cluster_.Reconnect(Name(i));
        }
        return;
      case 5:
        if (there) return cluster_.Kill(name);
        [[fallthrough]];
      default:
        if (there) return;
        left_.erase(name);
        cluster_.AddWorker(name, 1);
    }
  }

  int64_t Returns() {
    int64_t returns = 0;
    for (const auto& [job, devices] : jobs_) {
      for (const std::string& line : cluster_.lines(job)) {
        if (line.starts_with("returning to its plan")) ++returns;
      }
    }
    return returns;
  }
  bool SomebodyWaits() const {
    for (const proto::JobInfo& job : cluster_.core().Jobs()) {
      if (job.state == JobState::kQueued) return true;
    }
    return false;
  }

  void Work(int64_t ms, int messages) {
    for (int64_t passed = 0; passed < ms && !::testing::Test::HasFailure(); passed += 100) {
      for (int i = 0; i < messages && cluster_.DeliverOne(); ++i) {
      }
      const bool waits = SomebodyWaits();
      const int64_t before = Returns();
      cluster_.Advance(100);
      EXPECT_TRUE(!waits || Returns() == before) << "somebody waits for what a job returns to";
    }
  }

  SimCluster cluster_;
  std::map<int64_t, int64_t> jobs_;  // with their devices
  std::vector<int64_t> short_jobs_;
  std::set<std::string> left_;
};

TEST(ElasticSimulation, HoldsItsInvariantsInRandomHistories) {
  const Seeds seeds = SeedsOf(60, 3);
  ElasticSeen seen;
  for (uint64_t seed = seeds.first; seed <= seeds.last && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ElasticHistory history(seed);
    history.Run();
    history.Heal();
    history.ExpectAllHaveTheirPlans();
    history.Count(seen);
  }
  if (seeds.count() < 60) return;
  EXPECT_GT(seen.ahead, 20);
  EXPECT_GT(seen.replanned, 5);
  EXPECT_GT(seen.returned, 20);
  EXPECT_GT(seen.moved, 20);
  EXPECT_GT(seen.gave_way, 3);
  EXPECT_GT(seen.from_memory, 60);
}

}  // namespace
}  // namespace meshwright::controller
