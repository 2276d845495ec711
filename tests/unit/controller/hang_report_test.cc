// What `debug hang` says of jobs of a whole cluster, and its forms.
#include "controller/hang_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/hang_text.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Workers w0 and w1, and a job on both in its fifth step, whose marks a test says.
struct HangScene {
  SimCluster cluster;
  int64_t job = 0;
  struct Says {
    std::string state = "S";
    int64_t entered = 9;
    int64_t done = 8;
    int64_t cpu_ms = 0;  // of its process, between two heartbeats
    bool awaits_rows = false;
    bool silent = false;
  };
  Says ranks[2];
  int64_t cpu_total_ms[2] = {0, 0};
  bool moves = false;
  int64_t instruction = 3;

  void Run() {
    cluster.heartbeat = [this](const SimWorker& worker) { return MarksOf(worker); };
    cluster.AddWorkers(2);
    cluster.hold_from = 4;
    job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 10));
    cluster.Settle();
    ASSERT_EQ(cluster.Info(job).steps_done, 4);
  }
  proto::Heartbeat MarksOf(const SimWorker& worker) {
    proto::Heartbeat beat;
    const int rank = worker.name == "w1" ? 1 : 0;
    const Says& says = ranks[rank];
    if (says.silent) return beat;
    if (moves) ++instruction;
    cpu_total_ms[rank] += says.cpu_ms;
    for (const uint64_t gen : worker.meshes) {
      proto::RankMarks marks;
      marks.rank = rank;
      marks.in_step = true;
      marks.program = "step";
      marks.step = 4;
      marks.steps_begun = 6;
      marks.instruction = instruction;
      marks.age_ms = 500;
      marks.state = says.state;
      marks.awaits_rows = says.awaits_rows;
      marks.groups = {{"data/0-1", says.entered, says.done}};
      beat.meshes.push_back(
          {MeshGeneration(gen), "in a launch", cpu_total_ms[rank], {marks}, rank == 1 ? 4711 : 0});
    }
    return beat;
  }
  HangReport Report() { return cluster.core().Hang(JobId(job), cluster.now()).value(); }
};

TEST(HangReports, NameAStoppedProcessThatOthersWaitFor) {
  HangScene scene;
  scene.ranks[1] = {.state = "T", .entered = 8};
  scene.Run();
  scene.cluster.SettleFor(4'000);
  const HangReport report = scene.Report();
  EXPECT_TRUE(report.stalled);
  EXPECT_EQ(report.cause, HangCause::kStopped);
  EXPECT_THAT(report.suspects, ElementsAre(1));
  EXPECT_EQ(report.waiters, 1);
  ASSERT_EQ(report.collectives.size(), 1U);
  EXPECT_EQ(report.collectives[0].call, 9);
  EXPECT_THAT(report.collectives[0].inside, ElementsAre(0));
  EXPECT_THAT(report.collectives[0].missing, ElementsAre(1));
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_THAT(report.ranks[0].waits_for, ElementsAre(1));
  EXPECT_EQ(report.ranks[1].thread, "stopped");
  EXPECT_GE(report.ranks[1].since_ms, 500);
  const std::string text = FormatHang(report);
  EXPECT_THAT(text, AllOf(HasSubstr("nothing has moved for "),
                          HasSubstr("suspect: rank 1 (worker 'w1', device 0), at instruction 3"),
                          HasSubstr("why:      its process is stopped"),
                          HasSubstr("1 of 2 ranks waits for it"),
                          HasSubstr("kill -CONT 4711, the mw-executor of job 1;"),
                          HasSubstr("call 9 of group data/0-1 (2 members): in it 0; not come 1"),
                          HasSubstr("RANK  WORKER  DEVICE  PID ")));
  const auto json = nlohmann::json::parse(HangJson(report));
  EXPECT_EQ(json["cause"], "stopped");
  EXPECT_EQ(json["suspects"], nlohmann::json::parse("[1]"));
  EXPECT_EQ(json["ranks"][0]["waits_for"], nlohmann::json::parse("[1]"));
  EXPECT_TRUE(json["ranks"][0]["pid"].is_null()) << "nobody knows it";
  EXPECT_EQ(json["ranks"][1]["pid"], 4711);
}

TEST(HangReports, AWorkerThatIsNotHeardIsSuspectedFirst) {
  HangScene scene;
  scene.ranks[1] = {.entered = 8};
  scene.Run();
  scene.cluster.SettleFor(2'000);
  scene.ranks[1].silent = true;
  scene.cluster.SettleFor(4'000);
  const HangReport report = scene.Report();
  EXPECT_EQ(report.cause, HangCause::kSilent) << report.evidence;
  EXPECT_THAT(report.suspects, ElementsAre(1));
  EXPECT_THAT(report.evidence, HasSubstr("no heartbeat of worker w1 has come for "));
}

TEST(HangReports, ACollectiveThatAllHaveEnteredAndNobodyLeavesIsTheNetwork) {
  HangScene scene;
  scene.Run();
  scene.cluster.SettleFor(4'000);
  const HangReport report = scene.Report();
  EXPECT_EQ(report.cause, HangCause::kNetwork);
  EXPECT_THAT(report.suspects, ElementsAre(0, 1));
  EXPECT_THAT(report.evidence, HasSubstr("call 9 of group data/0-1"));
}

TEST(HangReports, TellWorkRowsAndDisksFromWhatIsStuck) {
  const auto cause = [](const HangScene::Says& says) {
    HangScene scene;
    scene.ranks[1] = says;
    scene.Run();
    scene.cluster.SettleFor(4'000);
    return scene.Report().cause;
  };
  EXPECT_EQ(cause({.entered = 8, .cpu_ms = 900}), HangCause::kAtWork);
  EXPECT_EQ(cause({.entered = 8, .awaits_rows = true}), HangCause::kRows);
  EXPECT_EQ(cause({.state = "D", .entered = 8}), HangCause::kDisk);
  EXPECT_EQ(cause({.entered = 8}), HangCause::kStuck);
}

TEST(HangReports, AJobThatMovesHasNoSuspect) {
  HangScene scene;
  scene.moves = true;
  scene.Run();
  scene.cluster.SettleFor(4'000);
  const HangReport report = scene.Report();
  EXPECT_FALSE(report.stalled);
  EXPECT_THAT(report.suspects, IsEmpty());
  EXPECT_THAT(FormatHang(report), AllOf(HasSubstr("it moves"), Not(HasSubstr("suspect"))));
}

TEST(HangReports, AJobThatDoesNotRunSaysSo) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 3));
  cluster.Settle();
  const HangReport report = cluster.core().Hang(JobId(job), cluster.now()).value();
  EXPECT_FALSE(report.running);
  EXPECT_THAT(FormatHang(report), HasSubstr("SUCCEEDED"));
  EXPECT_EQ(cluster.core().Hang(JobId(99), cluster.now()).error().code(), StatusCode::kNotFound);
}

TEST(HangReports, OfVeryManyRanksShowTheSuspectAndCountTheRest) {
  HangReport report;
  report.running = true;
  report.stalled = true;
  for (int rank = 0; rank < 1000; ++rank) {
    HangRank& each = report.ranks.emplace_back();
    each.rank = rank;
    each.worker = "w" + std::to_string(rank);
    each.known = true;
  }
  report.suspects = {917};
  const std::string text = FormatHang(report);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60);
  EXPECT_THAT(text, AllOf(HasSubstr("w917"), HasSubstr("and 968 more")));
}

}  // namespace
}  // namespace meshwright::controller
