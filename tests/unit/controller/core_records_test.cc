// Which steps devices are told to write down, and that what they wrote comes back by member.
#include "controller/core_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "controller/launches_under_way.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

JobEntry JobFrom(int64_t step) {
  JobEntry job;
  ir::StartPoint start;
  start.step = step;
  job.run.emplace(1, std::vector<RankPlace>{}, start);
  return job;
}

PlannedLaunch Steps(int64_t first, int64_t count) { return {ir::kStepProgram, first, count}; }

TEST(CoreRecords, TheSecondToTheFourthStepOfARunAreRecorded) {
  const JobEntry job = JobFrom(40);
  EXPECT_EQ(RecordedIn(Steps(40, 10), job), (ir::StepRange{41, 3}));
  EXPECT_EQ(RecordedIn(Steps(40, 2), job), (ir::StepRange{41, 1}));
  EXPECT_EQ(RecordedIn(Steps(42, 2), job), (ir::StepRange{42, 2}));
  EXPECT_EQ(RecordedIn(Steps(44, 10), job).count, 0);
}

// So that what is told of a long run is of what it does now.
TEST(CoreRecords, AndThreeOfEveryThousand) {
  const JobEntry job = JobFrom(40);
  EXPECT_EQ(RecordedIn(Steps(1'000, 10), job).count, 0);
  EXPECT_EQ(RecordedIn(Steps(1'000, 100), job), (ir::StepRange{1'041, 3}));
  EXPECT_EQ(RecordedIn(Steps(1'042, 1), job), (ir::StepRange{1'042, 1}));
  EXPECT_EQ(RecordedIn(Steps(1'044, 900), job).count, 0);
  EXPECT_EQ(RecordedIn(Steps(5'040, 2), job), (ir::StepRange{5'041, 1}));
}

TEST(CoreRecords, AndThoseThatSomebodyWants) {
  JobEntry job = JobFrom(0);
  job.record_wish = {25, 10};
  EXPECT_EQ(RecordedIn(Steps(20, 10), job), (ir::StepRange{25, 5}));
  EXPECT_EQ(RecordedIn(Steps(30, 10), job), (ir::StepRange{30, 5}));
  EXPECT_EQ(RecordedIn(Steps(40, 10), job).count, 0);
  EXPECT_EQ(RecordedIn(Steps(0, 10), job), (ir::StepRange{1, 3})) << "and the first ones as ever";
}

// What a worker's page shows.
TEST(CoreRecords, DevicesSayWhatTheyHaveBeenGiven) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_from = 4;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(2, 1, 1, 10));
  cluster.Settle();
  const auto runs = cluster.core().DeviceRuns();
  ASSERT_EQ(runs.size(), 2u);
  std::set<int> ranks;
  for (const auto& [worker, devices] : runs) {
    ASSERT_EQ(devices.size(), 1u) << worker;
    EXPECT_EQ(devices[0].job, JobId(job));
    EXPECT_EQ(devices[0].device, 0);
    ranks.insert(devices[0].rank);
    EXPECT_EQ(cluster.core().DeviceJobs().at(worker)[0], job);
  }
  EXPECT_THAT(ranks, ::testing::ElementsAre(0, 1));
  // Its story and metrics are told by which plan it runs, also by a controller that takes it up.
  ASSERT_EQ(cluster.begun.size(), 1u);
  cluster.RestartController();
  ASSERT_EQ(cluster.begun.size(), 2u);
  for (const RunBegins& begins : cluster.begun) {
    EXPECT_EQ(begins.job, JobId(job));
    EXPECT_EQ(begins.layout, cluster.Info(job).layout);
  }
  ASSERT_TRUE(cluster.Cancel(job).ok());
  cluster.Settle();
  EXPECT_TRUE(cluster.core().DeviceRuns().empty());
}

TEST(CoreRecords, OnlyStepsOfTrainingAre) {
  const JobEntry job = JobFrom(0);
  EXPECT_EQ(RecordedIn({ir::kInitProgram, 0, 4}, job).count, 0);
  EXPECT_EQ(RecordedIn({"eval", 0, 4}, job).count, 0);
  PlannedLaunch save = Steps(2, 0);
  save.kind = LaunchKind::kSave;
  EXPECT_EQ(RecordedIn(save, job).count, 0);
}

TEST(CoreRecords, ALaunchBringsWhatEachMemberWroteDown) {
  LaunchesUnderWay launches;
  const LaunchSeq seq = launches.Add(Steps(3, 1), std::nullopt, 2);
  for (const size_t member : {1, 0}) {
    proto::LaunchDone done{MeshGeneration(1), seq, {}, {{3, 0.5, {}, {}}}};
    done.begin_ns = 10;
    done.round = {1, 2, 30, 40};
    done.recorded.emplace_back().rank = static_cast<int32_t>(member);
    ASSERT_TRUE(launches.Report(member, std::move(done)).ok());
  }
  const std::optional<LaunchResult> result = launches.TakeComplete();
  ASSERT_TRUE(result.has_value());
  ASSERT_EQ(result->recorded.size(), 2u);
  for (size_t member = 0; member < 2; ++member) {
    const MemberRecord& of = result->recorded[member];
    EXPECT_EQ(of.member, member);
    EXPECT_EQ(of.steps.at(0).rank, static_cast<int32_t>(member));
    EXPECT_EQ(of.said_ns - of.begin_ns, 20);
    EXPECT_TRUE(of.round.complete());
  }
}

}  // namespace
}  // namespace meshwright::controller
