// The queue of a whole cluster: priorities, what starts behind a head that waits, waits that end,
// jobs that give way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Jobs of ten steps, which hang while `hold` is on.
struct Yard {
  SimCluster cluster;

  explicit Yard(int workers) {
    cluster.AddWorkers(workers);
    cluster.hold_from = 4;
  }
  int64_t Submit(int64_t devices, int64_t priority = 0) {
    ir::JobRequest request = SimCluster::MakeJob(devices, 1, 1, 10);
    request.queue.priority = priority;
    return Submit(request);
  }
  int64_t Submit(const ir::JobRequest& request) {
    const int64_t id = cluster.Submit(request);
    cluster.Settle();
    return id;
  }
  JobState StateOf(int64_t job) const { return cluster.Info(job).state; }
  bool Runs(int64_t job) const { return StateOf(job) == JobState::kRunning; }
  bool Waits(int64_t job) const { return StateOf(job) == JobState::kQueued; }
  void Cancel(int64_t job) {
    ASSERT_TRUE(cluster.Cancel(job).ok());
    cluster.Settle();
  }
};

// ---- Priorities ---------------------------------------------------------------------------------

TEST(Priorities, TheHighestGoesFirstAndOfEqualsTheOldest) {
  Yard yard(1);
  const int64_t running = yard.Submit(1);
  const int64_t low = yard.Submit(1, -1);
  const int64_t older = yard.Submit(1);
  const int64_t younger = yard.Submit(1);
  const int64_t high = yard.Submit(1, 5);
  EXPECT_THAT(yard.cluster.Info(low).message, HasSubstr("(3 ahead)"));
  std::vector<int64_t> order = {running};
  for (int i = 0; i < 4; ++i) {
    yard.Cancel(order.back());
    for (const int64_t job : {low, older, younger, high}) {
      if (yard.Runs(job)) order.push_back(job);
    }
  }
  EXPECT_THAT(order, ElementsAre(running, high, older, younger, low));
}

TEST(Priorities, ArePartOfWhatIsRestored) {
  Yard yard(1);
  yard.cluster.Kill("w0");
  yard.cluster.Settle();
  const int64_t low = yard.Submit(1);
  const int64_t high = yard.Submit(1, 5);
  yard.cluster.RestartController();
  yard.cluster.AddWorker("w0", 1);
  yard.cluster.Settle();
  EXPECT_TRUE(yard.Runs(high));
  EXPECT_TRUE(yard.Waits(low));
}

// ---- Behind a head that waits -------------------------------------------------------------------

TEST(Backfill, AJobForAnotherKindOfDevicesBlocksNobody) {
  Yard yard(1);
  ir::JobRequest gpu = SimCluster::MakeJob(1, 1, 1, 10);
  gpu.parallel.device = "cuda";
  const int64_t head = yard.Submit(gpu);
  yard.cluster.SettleFor(6000);
  const int64_t behind = yard.Submit(1);
  EXPECT_EQ(yard.cluster.Info(head).reason, "NoWorkers");
  EXPECT_TRUE(yard.Runs(behind)) << yard.cluster.Info(behind).message;
}

TEST(Backfill, TakesOnlyWhatTheHeadDoesNotNeed) {
  Yard yard(4);
  const int64_t three = yard.Submit(3);
  const int64_t head = yard.Submit(2);
  const int64_t behind = yard.Submit(1);
  const int64_t another = yard.Submit(1);
  ASSERT_TRUE(yard.Waits(head));
  EXPECT_TRUE(yard.Runs(behind)) << "when the three end, two are left over";
  EXPECT_TRUE(yard.Waits(another)) << "no device is free";
  EXPECT_EQ(yard.cluster.Info(another).reason, "QueuedBehind");
  yard.Cancel(three);
  EXPECT_TRUE(yard.Runs(head));
  EXPECT_TRUE(yard.Runs(another));

  Yard narrow(3);
  const int64_t one = narrow.Submit(1);
  const int64_t two = narrow.Submit(1);
  const int64_t wide = narrow.Submit(2);
  const int64_t small = narrow.Submit(1);
  ASSERT_TRUE(narrow.Runs(two));
  ASSERT_TRUE(narrow.Waits(wide));
  EXPECT_TRUE(narrow.Waits(small)) << "the free device is half of what the head waits for";
  narrow.Cancel(one);
  EXPECT_TRUE(narrow.Runs(wide));
}

TEST(Backfill, AHeadIsNotPassedForEver) {
  Yard yard(2);
  const int64_t first = yard.Submit(1);
  const int64_t head = yard.Submit(2);
  std::vector<int64_t> small;
  for (int i = 0; i < 5; ++i) small.push_back(yard.Submit(1));
  for (const int64_t job : small) EXPECT_TRUE(yard.Waits(job));
  yard.Cancel(first);
  EXPECT_TRUE(yard.Runs(head));
  yard.Cancel(head);
  EXPECT_TRUE(yard.Runs(small[0]) && yard.Runs(small[1]));
}

TEST(Backfill, WhoNeedsMoreThanIsOpenBlocksNobody) {
  Yard yard(2);
  ASSERT_TRUE(yard.cluster.Order("w1", proto::WorkerOrder::kCordon).ok());
  const int64_t head = yard.Submit(2);
  yard.cluster.SettleFor(6000);
  const int64_t behind = yard.Submit(1);
  yard.cluster.SettleFor(6000);
  EXPECT_TRUE(yard.Waits(head));
  EXPECT_TRUE(yard.Runs(behind)) << yard.cluster.Info(behind).message;
}

TEST(Backfill, AJobThatCanNeverFitEndsWithoutBeingTheHead) {
  Yard yard(2);
  const int64_t running = yard.Submit(1);
  const int64_t head = yard.Submit(2);
  const int64_t large = yard.Submit(3);
  yard.cluster.SettleFor(10'000);
  EXPECT_TRUE(yard.Runs(running) && yard.Waits(head));
  EXPECT_EQ(yard.StateOf(large), JobState::kFailed);
  EXPECT_EQ(yard.cluster.Info(large).reason, "Infeasible");
}

// ---- Waits that end -----------------------------------------------------------------------------

TEST(QueueTimeout, EndsAWaitAndNamesWhatItWaitedFor) {
  Yard yard(1);
  const int64_t running = yard.Submit(1);
  ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 10);
  request.queue.max_wait_s = 20;
  const int64_t waits = yard.Submit(request);
  yard.cluster.SettleFor(19'800);
  EXPECT_TRUE(yard.Waits(waits));
  yard.cluster.SettleFor(400);
  EXPECT_EQ(yard.StateOf(waits), JobState::kFailed);
  EXPECT_EQ(yard.cluster.Info(waits).reason, "QueueTimeout");
  EXPECT_THAT(yard.cluster.Info(waits).message, HasSubstr("20 s"));
  EXPECT_THAT(yard.cluster.Info(waits).message, HasSubstr("0 of 1 are free"));
  EXPECT_TRUE(yard.Runs(running)) << "who has devices does not wait";
}

TEST(QueueTimeout, IsNotForWhoHadDevicesBefore) {
  Yard yard(1);
  ir::JobRequest request = SimCluster::MakeJob(1, 1, 1, 10);
  request.queue.max_wait_s = 20;
  request.checkpoint.enable = true;
  yard.cluster.hold_from = -1;
  const int64_t job = yard.cluster.Submit(request);
  while (yard.cluster.Info(job).steps_done < 2) ASSERT_TRUE(yard.cluster.DeliverOne());
  ASSERT_TRUE(yard.cluster.Pause(job).ok());
  yard.cluster.Settle();
  yard.cluster.hold_from = 4;
  const int64_t other = yard.Submit(1);
  ASSERT_TRUE(yard.cluster.Resume(job).ok());
  yard.cluster.SettleFor(60'000);
  EXPECT_TRUE(yard.Runs(other) && yard.Waits(job)) << yard.cluster.Info(job).message;
}

// ---- Jobs that give way -------------------------------------------------------------------------

ir::JobRequest Preemptible(int64_t devices, int64_t priority = 0) {
  ir::JobRequest request = SimCluster::MakeJob(devices, 1, 1, 10);
  request.queue = {priority, true, 0};
  request.checkpoint.enable = true;
  request.checkpoint.interval = 0;
  return request;
}

// Until it has done some steps; the next ones are under way.
void RunTo(SimCluster& cluster, int64_t job, int64_t steps) {
  while (cluster.Info(job).steps_done < steps) ASSERT_TRUE(cluster.DeliverOne());
}

TEST(Preemption, AJobOfAHigherPriorityGetsTheDevicesAndTheOtherGoesOnBehindIt) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t low = cluster.Submit(Preemptible(2));
  RunTo(cluster, low, 3);
  ir::JobRequest urgent = SimCluster::MakeJob(1, 1, 1, 4);
  urgent.queue.priority = 10;
  const int64_t high = cluster.Submit(urgent);
  for (int i = 0; i < 10'000 && cluster.Info(high).steps_done == 0; ++i) cluster.DeliverOne();
  EXPECT_EQ(cluster.Info(low).state, JobState::kQueued);
  EXPECT_EQ(cluster.Info(low).checkpoint_step, cluster.Info(low).steps_done);
  cluster.Settle();
  EXPECT_EQ(cluster.Info(high).state, JobState::kSucceeded);
  EXPECT_EQ(cluster.Info(low).state, JobState::kSucceeded) << cluster.Info(low).message;
  EXPECT_THAT(cluster.steps(low), SizeIs(10));
  EXPECT_THAT(cluster.lines(low), Contains(HasSubstr("job 2 of priority 10 needs its devices")));
}

TEST(Preemption, NotWithoutNeedNotOfEqualsAndNotOfWhoDoesNotSaySo) {
  enum Case { kRoom, kEqual, kUnwilling, kNotEnough };
  for (const Case which : {kRoom, kEqual, kUnwilling, kNotEnough}) {
    SimCluster cluster;
    cluster.AddWorkers(which == kRoom ? 2 : 1);
    cluster.hold_from = 4;
    ir::JobRequest running = Preemptible(1);
    running.queue.preemptible = which != kUnwilling;
    const int64_t low = cluster.Submit(running);
    cluster.Settle();
    ASSERT_EQ(cluster.Info(low).state, JobState::kRunning);
    ir::JobRequest urgent = SimCluster::MakeJob(which == kNotEnough ? 2 : 1, 1, 1, 10);
    urgent.queue.priority = which == kEqual ? 0 : 10;
    (void)cluster.Submit(urgent);
    cluster.Settle();
    EXPECT_EQ(cluster.Info(low).reason, "") << which;
    EXPECT_EQ(cluster.Info(low).state, JobState::kRunning) << which;
  }
}

TEST(Preemption, OneThatCannotBeSavedGoesOnAndIsLeftAloneForAWhile) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  const int64_t low = cluster.Submit(Preemptible(1));
  RunTo(cluster, low, 2);
  cluster.hold_from = 7;
  cluster.fail_write["w0"] =
      proto::MakeError(proto::ErrorKind::kSaveFailed, ResourceExhausted("disk full"), "w0");
  ir::JobRequest urgent = SimCluster::MakeJob(1, 1, 1, 4);
  urgent.queue.priority = 10;
  const int64_t high = cluster.Submit(urgent);
  cluster.Settle();
  EXPECT_THAT(cluster.lines(low), Contains(HasSubstr("not preempted")));
  EXPECT_EQ(cluster.Info(low).state, JobState::kRunning);
  EXPECT_EQ(cluster.Info(low).reason, "");
  EXPECT_EQ(cluster.Info(high).state, JobState::kQueued);
  cluster.SettleFor(60'500);
  EXPECT_EQ(cluster.Info(low).reason, "Preempting") << "it is asked again";
}

}  // namespace
}  // namespace meshwright::controller
