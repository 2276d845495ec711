// Runs that go on although the controller died, or a session broke: workers hold what they run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

CoreOptions ResumeOptions() {
  CoreOptions options = SimCluster::DefaultOptions();
  options.resume_ms = 1000;
  return options;
}

ir::JobRequest SavedJob(int64_t steps) {
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, steps);
  job.train.steps_per_launch = 2;
  job.train.validate_every = 3;
  job.train.validation_batches = 2;
  job.checkpoint.enable = true;
  job.checkpoint.interval = 4;
  job.save_weights = true;
  return job;
}

struct HoldingScene {
  explicit HoldingScene(uint64_t seed = 1, int workers = 2) : cluster(ResumeOptions(), seed) {
    cluster.workers_hold = true;
    cluster.AddWorkers(workers);
  }
  void Submit(const ir::JobRequest& request) { job = cluster.Submit(request); }
  void RunUntil(size_t steps) {
    while (cluster.steps(job).size() < steps) ASSERT_TRUE(cluster.DeliverOne());
  }
  void Restart() {
    cluster.RestartController();
    cluster.Reconnect("w0");
    cluster.Reconnect("w1");
  }
  proto::JobInfo Info() { return cluster.Info(job); }
  // The whole job in its first mesh: nothing was planned, loaded or run again.
  void ExpectUndisturbed() {
    EXPECT_EQ(Info().state, JobState::kSucceeded) << Info().message;
    EXPECT_EQ(static_cast<int64_t>(cluster.steps(job).size()), Info().steps);
    EXPECT_EQ(Info().steps_done, Info().steps);
    EXPECT_EQ(cluster.plans, 1);
    EXPECT_EQ(cluster.last_load->mesh_gen, MeshGeneration(1));
    EXPECT_EQ(cluster.states().restores(), 0);
    for (const auto& worker : cluster.core().Workers(Now{})) EXPECT_EQ(worker.busy_devices, 0);
  }

  SimCluster cluster;
  int64_t job = 0;
};

TEST(CoreResume, ARestartedControllerTakesARunUp) {
  HoldingScene scene;
  scene.Submit(SimCluster::MakeJob(2, 1, 1, 10));
  scene.RunUntil(4);
  scene.Restart();
  EXPECT_EQ(scene.Info().state, JobState::kRunning);
  scene.cluster.Settle();
  scene.ExpectUndisturbed();
  EXPECT_EQ(scene.cluster.resumes, 2);
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("taken up by the restarted")));
}

TEST(CoreResume, AStoppedControllerLeavesItsRunsToTheNextOne) {
  HoldingScene scene;
  scene.Submit(SimCluster::MakeJob(2, 1, 1, 10));
  scene.RunUntil(4);
  scene.cluster.Feed(Shutdown{});
  EXPECT_EQ(scene.Info().state, JobState::kRunning);
  scene.Restart();
  scene.cluster.Settle();
  scene.ExpectUndisturbed();
}

TEST(CoreResume, WheneverTheControllerDiesNoStepIsMissedOrRunTwice) {
  int64_t resumes = 0;
  for (uint64_t seed = 1; seed <= 150 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HoldingScene scene(seed);
    ir::JobRequest job = SavedJob(12);
    job.fault_tolerance.enable = seed % 2 == 0;  // it needs no recovery
    scene.Submit(job);
    scene.RunUntil(1);
    while (scene.Info().state == JobState::kRunning && !::testing::Test::HasFailure()) {
      for (int64_t n = scene.cluster.Draw(40); n > 0 && scene.cluster.DeliverOne(); --n) {
      }
      if (scene.Info().state == JobState::kRunning) scene.Restart();
    }
    scene.cluster.Settle();
    scene.ExpectUndisturbed();
    resumes += scene.cluster.resumes;
  }
  EXPECT_GT(resumes, 300);
}

TEST(CoreResume, WheneverASessionBreaksNoStepIsMissedOrRunTwice) {
  int64_t resumes = 0;
  for (uint64_t seed = 1; seed <= 150 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HoldingScene scene(seed);
    ir::JobRequest job = SavedJob(12);
    job.save_weights = false;  // sending them does not go on in another session
    scene.Submit(job);
    scene.RunUntil(1);
    for (int flaps = 0; flaps < 4; ++flaps) {
      for (int64_t n = scene.cluster.Draw(60); n > 0 && scene.cluster.DeliverOne(); --n) {
      }
      scene.cluster.Flap(scene.cluster.Draw(2) == 0 ? "w0" : "w1");
    }
    scene.cluster.Settle();
    scene.ExpectUndisturbed();
    resumes += scene.cluster.resumes;
  }
  EXPECT_GT(resumes, 150);
}

TEST(CoreResume, WhoDoesNotComeBackInTimeIsLost) {
  HoldingScene scene;
  scene.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 10)));
  scene.RunUntil(4);
  scene.cluster.Kill("w1");
  scene.cluster.Settle();
  EXPECT_EQ(scene.Info().state, JobState::kRunning) << "its session may have broken alone";
  scene.cluster.SettleFor(900);
  EXPECT_EQ(scene.Info().state, JobState::kRunning);
  scene.cluster.SettleFor(300);
  EXPECT_EQ(scene.Info().reason, "WorkerLost");
  EXPECT_THAT(scene.Info().message, HasSubstr("did not come back"));
}

TEST(CoreResume, APeerThatFailsSaysThatAWorkerIsGone) {
  HoldingScene scene;
  scene.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 10)));
  scene.cluster.hold_from = 4;
  scene.cluster.Settle();
  scene.cluster.Kill("w1");
  scene.cluster.Settle();
  scene.cluster.FeedFrom(
      "w0", proto::MeshError{MeshGeneration(1), proto::MakeError(proto::ErrorKind::kStepFailed,
                                                                 Unavailable("peer gone"), "w0")});
  scene.cluster.SettleFor(200);
  EXPECT_EQ(scene.Info().reason, "WorkerLost") << scene.Info().message;
}

TEST(CoreResume, AStallOfTheControllerIsNoWorkersFault) {
  HoldingScene scene;
  ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 10);
  request.fault_tolerance.elastic = ir::Elastic::kOff;
  scene.Submit(request);
  scene.RunUntil(4);
  scene.cluster.Advance(200);
  scene.cluster.Kill("w0");  // what is lost of it is its session, as far as the controller knows
  scene.cluster.Settle();
  scene.cluster.Stall(29'000);
  scene.cluster.SettleFor(3000);
  EXPECT_EQ(scene.Info().state, JobState::kRunning)
      << ::testing::PrintToString(scene.cluster.lines(scene.job));
  scene.cluster.SettleFor(4000);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering) << "it does not come, after all";
}

TEST(CoreResume, ARunWhoseWorkerCameBackWithoutItRecovers) {
  HoldingScene scene;
  scene.Submit(SimCluster::MakeJob(2, 1, 1, 10));
  scene.RunUntil(4);
  scene.cluster.RestartController();
  scene.cluster.Reconnect("w0");
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  scene.cluster.SettleFor(1000);
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded) << scene.Info().message;
  EXPECT_EQ(scene.cluster.last_load->mesh_gen, MeshGeneration(2));
  EXPECT_THAT(scene.cluster.steps(scene.job), SizeIs(10));
  EXPECT_THAT(scene.cluster.lines(scene.job),
              Contains(HasSubstr("worker 'w1' came back without mesh generation 1")));
}

// The host of the controller dies with a worker, and both are back before the other worker is.
TEST(CoreResume, WhoHoldsSnapshotsIsAwaitedBeforeItIsDecidedWhereARunGoesOnFrom) {
  HoldingScene scene;
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 10);
  job.fault_tolerance.snapshot_every = 1;
  job.fault_tolerance.copies = 1;
  scene.Submit(job);
  scene.RunUntil(6);
  scene.cluster.RestartController();
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.SettleFor(2000);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_THAT(scene.cluster.lines(scene.job), Not(Contains(HasSubstr("goes on from"))));
  scene.cluster.Reconnect("w0");
  scene.cluster.Settle();
  scene.cluster.SettleFor(1000);
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded) << scene.Info().message;
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("goes on from the snapshot")));
}

// It never comes: its memory is given up after the time that it had.
TEST(CoreResume, WhoHeldSnapshotsIsAwaitedAsLongAsAWorkerMayBeSilent) {
  HoldingScene scene;
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 10);
  job.fault_tolerance.snapshot_every = 1;
  scene.Submit(job);
  scene.RunUntil(6);
  scene.cluster.RestartController();
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.AddWorker("w2", 1);
  scene.cluster.SettleFor(5000);
  EXPECT_THAT(scene.cluster.lines(scene.job), Not(Contains(HasSubstr("goes on from"))));
  scene.cluster.SettleFor(2000);
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("goes on from the beginning")));
}

TEST(CoreResume, ARunWhoseWorkersDoNotComeRecoversAfterItsTime) {
  HoldingScene scene;
  scene.Submit(SimCluster::MakeJob(2, 1, 1, 10));
  scene.RunUntil(4);
  scene.cluster.RestartController();
  scene.cluster.Reconnect("w0");
  scene.cluster.SettleFor(5800);
  EXPECT_EQ(scene.Info().state, JobState::kRunning);
  scene.cluster.SettleFor(500);
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("'w1' did not come back within")));
  EXPECT_TRUE(scene.cluster.worker("w0").meshes.empty()) << "it was told to let go";
  scene.cluster.Reconnect("w1");
  scene.cluster.SettleFor(1000);
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded);
}

TEST(CoreResume, AJobThatMayNotRecoverEndsWhenItsRunCannotBeTakenUp) {
  HoldingScene scene;
  scene.Submit(WithoutRecovery(SimCluster::MakeJob(2, 1, 1, 10)));
  scene.RunUntil(4);
  scene.cluster.RestartController();
  scene.cluster.SettleFor(7000);
  EXPECT_EQ(scene.Info().reason, "ControllerRestarted");
}

TEST(CoreResume, WithoutAGraceTimeItRecoversAtOnce) {
  HoldingScene scene;
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 10);
  job.fault_tolerance.orphan_grace_s = 0;
  scene.Submit(job);
  scene.RunUntil(4);
  EXPECT_EQ(scene.cluster.last_load->orphan_grace_ms, 0);
  scene.Restart();
  EXPECT_EQ(scene.Info().state, JobState::kRecovering);
  scene.cluster.Settle();
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded);
}

TEST(CoreResume, AJobIsCancelledWhileItsWorkersComeBack) {
  HoldingScene scene;
  scene.Submit(SimCluster::MakeJob(2, 1, 1, 10));
  scene.RunUntil(4);
  scene.cluster.RestartController();
  scene.cluster.Reconnect("w0");
  while (scene.cluster.core().WorkerCounts().at("READY") == 0) scene.cluster.DeliverOne();
  EXPECT_TRUE(scene.cluster.Cancel(scene.job).ok());
  scene.cluster.Reconnect("w1");
  scene.cluster.SettleFor(1000);
  EXPECT_EQ(scene.Info().state, JobState::kCancelled);
  EXPECT_TRUE(scene.cluster.worker("w0").meshes.empty());
  EXPECT_TRUE(scene.cluster.worker("w1").meshes.empty());
}

// As many messages as there are workers, and no program is loaded again.
TEST(CoreResume, ManyWorkersComeBackWithAFewMessagesEach) {
  const char* const wanted = std::getenv("MESHWRIGHT_TEST_WORKERS");
  const int many = wanted == nullptr ? 200 : std::atoi(wanted);
  HoldingScene scene(1, many);
  ir::JobRequest job = SimCluster::MakeJob(many, 1, 1, 3);
  job.fault_tolerance.snapshot_every =
      0;  // the simulated state has fewer rows than there are ranks
  scene.Submit(job);
  scene.RunUntil(1);
  const int64_t begin_ns = SystemClock().NowNs();
  const int64_t core_begin_ns = scene.cluster.core_ns();
  scene.cluster.RestartController();
  for (int i = 0; i < many; ++i) scene.cluster.Reconnect("w" + std::to_string(i));
  scene.cluster.Settle();
  const int64_t took_ns = SystemClock().NowNs() - begin_ns;
  const int64_t core_took_ns = scene.cluster.core_ns() - core_begin_ns;
  scene.ExpectUndisturbed();
  const auto& counts = scene.cluster.core().message_totals();
  EXPECT_EQ(counts.at("Register"), many);
  EXPECT_EQ(counts.at("Welcome"), many);
  EXPECT_EQ(counts.at("ResumeMesh"), many);
  EXPECT_FALSE(counts.contains("LoadMesh"));
  EXPECT_LE(counts.at("Launch"), 3 * many);
  struct rusage usage = {};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  fmt::print(
      "{} workers came back and ended the job in {:.2f} s, of which the core took {:.2f} s and the "
      "rest are simulated workers and checks of invariants; the process has had {} MiB\n",
      many, static_cast<double>(took_ns) * 1e-9, static_cast<double>(core_took_ns) * 1e-9,
      usage.ru_maxrss >> 10);
}

}  // namespace
}  // namespace meshwright::controller
