#include "web/watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fake_clock.h"
#include "tests/unit/web/fake_cluster.h"

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

}  // namespace
}  // namespace meshwright::web
