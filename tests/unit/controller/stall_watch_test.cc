#include "controller/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {

using ::testing::SizeIs;

// Two workers of a rank each, of which rank 1 stands and rank 0 waits for it in a collective.
struct Watched {
  StallWatch watch{0};
  StallRule rule;
  int64_t now_ms = 0;
  int64_t cpu_ms[2] = {0, 0};  // of the workers' processes, between two heartbeats
  int64_t cpu_total_ms[2] = {0, 0};
  std::string state[2] = {"S", "S"};
  bool silent[2] = {false, false};
  bool reads = false;  // rank 1
  bool runs = true;
  int64_t instruction = 5;

  void Hear() {
    for (int rank = 0; rank < 2; ++rank) {
      if (silent[rank]) continue;
      proto::RankMarks marks;
      marks.rank = rank;
      marks.in_step = true;
      marks.steps_begun = 1;
      marks.instruction = instruction;
      marks.age_ms = now_ms;
      marks.state = state[rank];
      marks.awaits_rows = rank == 1 && reads;
      marks.groups = {{"g", rank == 0 ? 1 : 0, 0}};
      cpu_total_ms[rank] += cpu_ms[rank];
      watch.Hear(rank == 0 ? "a" : "b",
                 {MeshGeneration(1), "in a launch", cpu_total_ms[rank], {marks}}, now_ms);
    }
  }
  StallNews Check() { return watch.Check(nullptr, {"a", "b"}, runs, rule, now_ms); }
  // Time passes with a heartbeat a second; the first change.
  StallNews Pass(int64_t seconds) {
    for (int64_t i = 0; i < seconds * 10; ++i) {
      now_ms += 100;
      if (now_ms % 1000 == 0) Hear();
      if (const StallNews news = Check(); news.change != StallChange::kNone) return news;
    }
    return {};
  }
};

TEST(StallWatch, NamesAStallOnceWithinTwoSecondsOfTheRule) {
  Watched mesh;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  const StallNews news = mesh.Pass(12);
  EXPECT_EQ(news.change, StallChange::kNamed);
  EXPECT_GE(mesh.now_ms, 10'000);
  EXPECT_LE(mesh.now_ms, 12'000);
  ASSERT_THAT(news.diagnosis.roots, SizeIs(1));
  EXPECT_EQ(news.diagnosis.roots[0].rank, 1);
  EXPECT_FALSE(news.at_work);
  EXPECT_EQ(mesh.Pass(40).change, StallChange::kNone) << "once is enough";
}

TEST(StallWatch, AJobOfLongStepsHasTwentyOfThem) {
  Watched mesh;
  mesh.rule.end_ms = 0;
  mesh.Hear();
  mesh.watch.OnStep(3);
  EXPECT_EQ(mesh.Pass(59).change, StallChange::kNone);
  EXPECT_EQ(mesh.Pass(3).change, StallChange::kNamed);
}

TEST(StallWatch, WhatMovesIsNoStall) {
  Watched mesh;
  mesh.watch.OnStep(0.1);
  for (int i = 0; i < 10; ++i) {
    ++mesh.instruction;
    EXPECT_EQ(mesh.Pass(9).change, StallChange::kNone) << i;
  }
}

TEST(StallWatch, WhatMovesAgainIsTold) {
  Watched mesh;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  ASSERT_EQ(mesh.Pass(12).change, StallChange::kNamed);
  ++mesh.instruction;
  EXPECT_EQ(mesh.Pass(2).change, StallChange::kMoves);
  EXPECT_EQ(mesh.Pass(8).change, StallChange::kNone);
  EXPECT_EQ(mesh.Pass(4).change, StallChange::kNamed) << "another one";
}

TEST(StallWatch, EndsWhereNothingIsAtWork) {
  Watched mesh;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  ASSERT_EQ(mesh.Pass(12).change, StallChange::kNamed);
  const StallNews end = mesh.Pass(60);
  EXPECT_EQ(end.change, StallChange::kEnd);
  EXPECT_GE(mesh.now_ms, 60'000);
  EXPECT_LE(mesh.now_ms, 62'000);
  EXPECT_EQ(end.diagnosis.roots.at(0).rank, 1);
}

TEST(StallWatch, AStallOfAnyLengthStaysWhereNothingIsToBeEnded) {
  Watched mesh;
  mesh.rule.end_ms = 0;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  ASSERT_EQ(mesh.Pass(12).change, StallChange::kNamed);
  EXPECT_EQ(mesh.Pass(10'000).change, StallChange::kNone);
}

// However slow it is: with a fiftieth of a core it is at work.
TEST(StallWatch, APeerThatComputesIsNamedAndNeverEnded) {
  Watched mesh;
  mesh.cpu_ms[1] = 50;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  const StallNews named = mesh.Pass(12);
  EXPECT_EQ(named.change, StallChange::kNamed);
  EXPECT_TRUE(named.at_work);
  EXPECT_EQ(mesh.Pass(10'000).change, StallChange::kNone);
}

TEST(StallWatch, WhoWouldRunIfItHadACoreIsAtWork) {
  Watched mesh;
  mesh.state[1] = "R";
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  EXPECT_TRUE(mesh.Pass(12).at_work);
  EXPECT_EQ(mesh.Pass(1'000).change, StallChange::kNone);
}

TEST(StallWatch, WhoReadsRowsIsAtWorkUnlessItIsStopped) {
  Watched mesh;
  mesh.reads = true;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  EXPECT_TRUE(mesh.Pass(12).at_work);
  EXPECT_EQ(mesh.Pass(1'000).change, StallChange::kNone);
  mesh.state[1] = "T";
  const StallNews end = mesh.Pass(2);
  EXPECT_EQ(end.change, StallChange::kEnd);
  EXPECT_TRUE(end.stopped);
}

// Who waits wakes up now and then; who is waited for does nothing.
TEST(StallWatch, TheProcessorTimeOfThoseThatWaitDoesNotCount) {
  Watched mesh;
  mesh.cpu_ms[0] = 500;
  mesh.state[0] = "R";
  mesh.cpu_ms[1] = 5;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  EXPECT_FALSE(mesh.Pass(12).at_work);
  EXPECT_EQ(mesh.Pass(60).change, StallChange::kEnd);
}

// What it did before it stood still is no sign of life.
TEST(StallWatch, WorkOfLongAgoDoesNotCount) {
  Watched mesh;
  mesh.cpu_ms[1] = 1000;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  ASSERT_EQ(mesh.Pass(40).change, StallChange::kNamed);
  ASSERT_EQ(mesh.Pass(60).change, StallChange::kNone);
  mesh.cpu_ms[1] = 0;
  EXPECT_EQ(mesh.Pass(15).change, StallChange::kEnd);
}

TEST(StallWatch, ASilentWorkerIsNotJudged) {
  Watched mesh;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  mesh.silent[1] = true;
  EXPECT_EQ(mesh.Pass(100).change, StallChange::kNone);
  Watched other;
  other.silent[1] = true;
  other.watch.OnStep(0.1);
  EXPECT_EQ(other.Pass(100).change, StallChange::kNone) << "it has never been heard";
}

TEST(StallWatch, WithoutAProgramUnderWayNothingHasToMove) {
  Watched mesh;
  mesh.Hear();
  mesh.watch.OnStep(0.1);
  mesh.runs = false;
  EXPECT_EQ(mesh.Pass(100).change, StallChange::kNone);
  mesh.runs = true;
  EXPECT_EQ(mesh.Pass(9).change, StallChange::kNone) << "it counts from the launch";
  EXPECT_EQ(mesh.Pass(3).change, StallChange::kNamed);
}

// Nobody knows how long the first step takes.
TEST(StallWatch, BeforeAStepIsDoneWhoIsAtWorkIsNotNamed) {
  Watched mesh;
  mesh.cpu_ms[1] = 900;
  mesh.Hear();
  EXPECT_EQ(mesh.Pass(1'000).change, StallChange::kNone);
  Watched stuck;
  stuck.Hear();
  EXPECT_EQ(stuck.Pass(12).change, StallChange::kNamed) << "and who is not is";
}

TEST(StallWatch, WhoEndsEarlyNamesEarly) {
  Watched mesh;
  mesh.rule.end_ms = 3'000;
  mesh.Hear();
  mesh.watch.OnStep(0.01);
  ASSERT_EQ(mesh.Pass(4).change, StallChange::kNamed);
  EXPECT_EQ(mesh.Pass(1).change, StallChange::kEnd);
}

}  // namespace
}  // namespace meshwright::controller
