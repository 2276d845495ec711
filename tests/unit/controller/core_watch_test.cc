// What becomes of a job whose ranks stand still or are slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Workers w0 and w1, and a job on both that stands in its fifth step: w1 has not entered the
// collective in which w0 is.
struct StandingJob {
  SimCluster cluster;
  int64_t job = 0;
  std::string state = "S";  // of w1's thread
  int64_t cpu_ms = 0;       // of w1's process, between two heartbeats
  int64_t cpu_total_ms = 0;

  void Run(const ir::JobRequest& request) {
    cluster.heartbeat = [this](const SimWorker& worker) { return MarksOf(worker); };
    cluster.AddWorkers(2);
    cluster.hold_from = 4;
    job = cluster.Submit(request);
    cluster.Settle();
    ASSERT_EQ(cluster.Info(job).state, JobState::kRunning);
    ASSERT_EQ(cluster.Info(job).steps_done, 4);
  }
  static ir::JobRequest Request() {
    ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 10);
    request.checkpoint.enable = true;
    request.checkpoint.interval = 2;
    return request;
  }
  proto::Heartbeat MarksOf(const SimWorker& worker) {
    proto::Heartbeat beat;
    const bool second = worker.name == "w1";
    if (second) cpu_total_ms += cpu_ms;
    for (const uint64_t gen : worker.meshes) {
      proto::RankMarks marks;
      marks.rank = second ? 1 : 0;
      marks.in_step = true;
      marks.program = "step";
      marks.step = 4;
      marks.steps_begun = 6;
      marks.instruction = 3;
      marks.state = second ? state : "S";
      marks.groups = {{"data/0-1", second ? 8 : 9, 8}};
      beat.meshes.push_back(
          {MeshGeneration(gen), "in a launch", second ? cpu_total_ms : 0, {marks}});
    }
    return beat;
  }
  const std::vector<std::string>& lines() { return cluster.lines(job); }
};

TEST(CoreWatch, AStallIsNamedInLogHistoryAndStatusAndThenEndedAndRecovered) {
  StandingJob scene;
  scene.Run(StandingJob::Request());
  scene.state = "T";
  scene.cluster.SettleFor(9'000);
  EXPECT_THAT(scene.lines(), Not(Contains(HasSubstr("nothing has moved"))));
  scene.cluster.SettleFor(3'000);
  const auto named = AllOf(HasSubstr("nothing has moved for 10 s: rank 1 (worker 'w1', device 0) "
                                     "at instruction 3 of step 4"),
                           HasSubstr("1 rank waits for it: rank 0 (worker 'w0', device 0)"),
                           HasSubstr("its process is stopped"));
  EXPECT_THAT(scene.lines(), Contains(named));
  EXPECT_EQ(scene.cluster.Info(scene.job).state, JobState::kRunning);
  EXPECT_THAT(scene.cluster.Info(scene.job).message, named);
  EXPECT_EQ(scene.cluster.Info(scene.job).reason, "Stalled");
  scene.cluster.hold_from = -1;
  scene.cluster.SettleFor(60'000);
  EXPECT_THAT(scene.lines(), Contains(AllOf(HasSubstr("recovering"), HasSubstr("rank 1"),
                                            HasSubstr("fault_tolerance.stall_seconds = 60"))));
  EXPECT_EQ(scene.cluster.Info(scene.job).state, JobState::kSucceeded);
  EXPECT_THAT(scene.cluster.Info(scene.job).message, Not(HasSubstr("moved")));
}

TEST(CoreWatch, AJobThatDoesNotRecoverEndsAsStalledWithTheRanksWorkerToBlame) {
  StandingJob scene;
  ir::JobRequest request = StandingJob::Request();
  request.fault_tolerance.enable = false;
  request.fault_tolerance.stall_s = 20;
  scene.Run(request);
  scene.cluster.SettleFor(25'000);
  const proto::JobInfo info = scene.cluster.Info(scene.job);
  EXPECT_EQ(info.state, JobState::kFailed);
  EXPECT_EQ(info.reason, "Stalled");
  EXPECT_THAT(info.message, HasSubstr("worker 'w1'"));
  EXPECT_THAT(info.message, HasSubstr("it uses no processor and reads nothing"));
}

TEST(CoreWatch, APeerThatIsAtWorkIsNeverEnded) {
  StandingJob scene;
  scene.cpu_ms = 40;
  scene.Run(StandingJob::Request());
  scene.cluster.SettleFor(600'000);
  EXPECT_EQ(scene.cluster.Info(scene.job).state, JobState::kRunning);
  EXPECT_THAT(scene.lines(), Contains(HasSubstr("it is at work, and is waited for")));
}

TEST(CoreWatch, StallSecondsOfZeroEndNothing) {
  StandingJob scene;
  ir::JobRequest request = StandingJob::Request();
  request.fault_tolerance.stall_s = 0;
  scene.Run(request);
  scene.cluster.SettleFor(600'000);
  EXPECT_EQ(scene.cluster.Info(scene.job).state, JobState::kRunning);
}

TEST(CoreWatch, MarksOfAForeignMeshAreNothing) {
  StandingJob scene;
  scene.Run(StandingJob::Request());
  proto::Heartbeat beat;
  proto::RankMarks marks;
  marks.rank = 1;
  beat.meshes.push_back({MeshGeneration(99), "", 0, {marks}});
  scene.cluster.FeedFrom("w0", beat);
  EXPECT_EQ(scene.cluster.Info(scene.job).state, JobState::kRunning);
}

// Of four ranks one takes a tenth longer.
TEST(CoreWatch, ASlowRankIsNamedAndTakenBack) {
  SimCluster cluster;
  cluster.AddWorkers(4);
  for (int rank = 0; rank < 4; ++rank) {
    cluster.busy["w" + std::to_string(rank)] = {rank, rank == 2 ? 0.11 : 0.1};
  }
  ir::JobRequest request = SimCluster::MakeJob(4, 1, 1, 400);
  request.train.steps_per_launch = 1;
  const int64_t job = cluster.Submit(request);
  while (cluster.Info(job).steps_done < 100) ASSERT_TRUE(cluster.DeliverOne());
  const auto slow = HasSubstr("rank 2 (worker 'w2', device 0) takes 1.10 times as long");
  EXPECT_THAT(cluster.lines(job), Contains(slow));
  EXPECT_THAT(cluster.Info(job).message, slow);
  EXPECT_EQ(cluster.Info(job).reason, "SlowRank");
  cluster.busy["w2"] = {2, 0.1};
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
  EXPECT_THAT(cluster.lines(job), Contains(HasSubstr("no longer slow: rank 2")));
  EXPECT_THAT(cluster.Info(job).message, IsEmpty());
}

}  // namespace
}  // namespace meshwright::controller
