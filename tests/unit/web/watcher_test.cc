#include "web/watcher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/fake_clock.h"
#include "tests/unit/web/fake_cluster.h"
#include "web/api_json.h"

namespace meshwright::web {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WatcherTest : public testing::Test {
 protected:
  std::string Told() { return viewer_->Take(Deadline::After(0)).value_or("closed"); }
  std::string LookAndTell() {
    watcher_.Look();
    clock_.AdvanceMs(Watcher::kLookMs);
    return Told();
  }

  FakeClock clock_;
  FakeCluster cluster_;
  Curves curves_{cluster_};
  Feed feed_;
  Watcher watcher_{cluster_, curves_, feed_, clock_};
  std::shared_ptr<Viewer> viewer_ = feed_.Join(7);
};

TEST_F(WatcherTest, TellsWhatHasChangedAndNothingElse) {
  cluster_.AddJob(7, proto::JobState::kRunning);
  cluster_.AddJob(8, proto::JobState::kQueued);
  cluster_.AddWorker("w0", 2, 0);
  EXPECT_THAT(LookAndTell(), HasSubstr("event: resync"));  // the first look knows no change
  EXPECT_EQ(LookAndTell(), "");
  cluster_.state.jobs[1].steps_done = 5;
  std::string told = LookAndTell();
  EXPECT_THAT(told, HasSubstr("event: jobs\ndata: [{\"id\":7,"));
  EXPECT_THAT(told, Not(HasSubstr("\"id\":8")));
  EXPECT_THAT(told, Not(HasSubstr("event: workers")));
  cluster_.state.workers[0].busy_devices = 2;
  told = LookAndTell();
  EXPECT_THAT(told, HasSubstr("event: workers\ndata: [[\"w0\",\"READY\",2,2,"));
  EXPECT_THAT(told, HasSubstr("event: totals\ndata: {\"workers\":{\"READY\":1}"));
  // That it was heard of a moment later is no news.
  cluster_.state.workers[0].last_seen_s = 3;
  EXPECT_EQ(LookAndTell(), "");
}

TEST_F(WatcherTest, WhatHasGoneIsAskedForAnew) {
  cluster_.AddWorker("w0", 1, 0);
  LookAndTell();
  cluster_.state.workers.clear();
  EXPECT_THAT(LookAndTell(), HasSubstr("event: resync"));
}

TEST_F(WatcherTest, TellsNewEventsOnce) {
  cluster_.events = {{1, 0, "worker w0 joined"}};
  LookAndTell();
  cluster_.events.push_back({2, 7, "job 7 runs"});
  cluster_.events.push_back({2, 7, "job 7 runs"});
  const std::string told = LookAndTell();
  EXPECT_THAT(told,
              HasSubstr("event: events\ndata: [{\"unix_ms\":2,\"job\":7,\"text\":\"job 7 runs\"}"));
  EXPECT_THAT(told, Not(HasSubstr("joined")));
  EXPECT_EQ(LookAndTell(), "");
}

TEST_F(WatcherTest, TellsStepsOfTheJobThatIsOpen) {
  cluster_.AddJob(7, proto::JobState::kRunning);
  cluster_.AddJob(8, proto::JobState::kRunning);
  LookAndTell();
  cluster_.AddSteps(7, 2);
  cluster_.AddSteps(8, 2);
  const std::string told = LookAndTell();
  EXPECT_THAT(told, HasSubstr("event: steps\ndata: {\"job\":7,\"steps\":[{\"step\":0,"));
  EXPECT_THAT(told, HasSubstr("\"step\":1"));
  EXPECT_THAT(told, Not(HasSubstr("\"job\":8")));
  EXPECT_THAT(LookAndTell(), Not(HasSubstr("event: steps")));
}

TEST_F(WatcherTest, TakesASampleEveryFiveSecondsThoughNobodyLooks) {
  feed_.Leave(viewer_);
  cluster_.AddJob(7, proto::JobState::kRunning);
  cluster_.AddWorker("w0", 4, 3);
  for (int i = 0; i < 11; ++i) {
    cluster_.AddSteps(7, 1);
    watcher_.Look();
    clock_.AdvanceMs(Watcher::kLookMs);
  }
  const auto samples = watcher_.HistorySince(0, 100);
  ASSERT_EQ(samples.size(), 3u);
  Sample last = samples.back();
  EXPECT_EQ(last[Gauge::kDevices], 4);
  EXPECT_EQ(last[Gauge::kBusy], 3);
  EXPECT_EQ(last[Gauge::kRunning], 1);
  EXPECT_DOUBLE_EQ(last[Gauge::kTokensPerS], 100);  // a step of 100 tokens in a second
}

TEST_F(WatcherTest, TenThousandEventsAtOnceAreAskedForAnew) {
  cluster_.events = {{1, 0, "first"}};
  LookAndTell();
  for (int i = 0; i < 10'000; ++i) cluster_.events.push_back({i + 2, 0, "e" + std::to_string(i)});
  EXPECT_THAT(LookAndTell(), HasSubstr("event: resync"));
  EXPECT_EQ(LookAndTell(), "");
}

class CrowdTest : public WatcherTest {
 protected:
  static constexpr int kWorkers = 1000;

  static std::string NameOf(int index) { return fmt::format("node-{:04}", index); }
  void SetUp() override {
    for (int i = 0; i < kWorkers; ++i) cluster_.AddWorker(NameOf(i), 8, 0);
    LookAndTell();
    ASSERT_EQ(LookAndTell(), "");
  }
  // Names of the tiles that were told, by how often.
  static std::map<std::string, int> TilesIn(const std::string& told) {
    std::map<std::string, int> names;
    for (size_t at = told.find("[\"node-"); at != std::string::npos;
         at = told.find("[\"node-", at + 1)) {
      ++names[told.substr(at + 2, 9)];
    }
    return names;
  }
};

// What a viewer costs in a second: the frame of three messages, the totals, and the tiles that have
// changed, each once.
TEST_F(CrowdTest, BytesGoByWhatChangesAndNotByHowManyThereAre) {
  for (const int changed : {1, 10, 100}) {
    for (int i = 0; i < changed; ++i)
      ++cluster_.state.workers[static_cast<size_t>(i) * 7].busy_devices;
    const std::string tile = WorkerTileJson(cluster_.state.workers[0]);
    const std::string tiles =
        std::string(static_cast<size_t>(changed) * (tile.size() + 1) + 1, ' ');
    const ClusterState now = cluster_.Look().value();
    EXPECT_EQ(LookAndTell().size(),
              FormatEvent("workers", tiles).size() + FormatEvent("totals", TotalsJson(now)).size());
  }
  EXPECT_EQ(LookAndTell(), "");
}

TEST_F(CrowdTest, WhereAllChangeAgainAndAgainEachHasItsTurn) {
  constexpr size_t kMost = Watcher::kMostTilesTold;
  std::map<std::string, int> told;
  constexpr int kTurns = (kWorkers + static_cast<int>(kMost) - 1) / static_cast<int>(kMost);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (proto::WorkerInfo& worker : cluster_.state.workers) worker.busy_devices = turn % 2 + 1;
    const std::string text = LookAndTell();
    const auto names = TilesIn(text);
    EXPECT_EQ(names.size(), kMost);
    const size_t longest = WorkerTileJson(cluster_.state.workers[0]).size() + 1;
    EXPECT_LE(text.size(), kMost * longest + 400);
    for (const auto& [name, count] : names) told[name] += count;
  }
  EXPECT_EQ(told.size(), static_cast<size_t>(kWorkers)) << "some were never told";
}

TEST_F(CrowdTest, WhatIsToldLaterIsStillTold) {
  for (proto::WorkerInfo& worker : cluster_.state.workers) worker.busy_devices = 3;
  std::map<std::string, int> told;
  for (std::string text = LookAndTell(); !text.empty(); text = LookAndTell()) {
    for (const auto& [name, count] : TilesIn(text)) told[name] += count;
  }
  ASSERT_EQ(told.size(), static_cast<size_t>(kWorkers));
  for (const auto& [name, count] : told) EXPECT_EQ(count, 1) << name;
}

// A new one that goes before its turn came: a page that was opened meanwhile has it.
TEST_F(CrowdTest, WhoGoesBeforeItWasToldIsMissed) {
  for (proto::WorkerInfo& worker : cluster_.state.workers) worker.busy_devices = 3;
  cluster_.AddWorker("zz", 8, 0);
  EXPECT_THAT(LookAndTell(), Not(HasSubstr("\"zz\"")));
  cluster_.state.workers.pop_back();
  EXPECT_THAT(LookAndTell(), HasSubstr("event: resync"));
}

}  // namespace
}  // namespace meshwright::web
