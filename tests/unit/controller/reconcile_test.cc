#include "controller/reconcile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/train_driver.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

proto::ToldLaunch StepsTold(uint64_t seq, int64_t first, int64_t count = 1) {
  return {LaunchSeq(seq), proto::ToldKind::kProgram, 2, first, count, false};
}

proto::ResumeMesh Saying(uint64_t first, std::vector<proto::ToldLaunch> launches, size_t done) {
  proto::ResumeMesh said;
  said.first_seq = LaunchSeq(first);
  said.launches = std::move(launches);
  for (size_t i = 0; i < done; ++i) {
    said.done.push_back({MeshGeneration(1), LaunchSeq(first + i), {}, {}, {}});
  }
  return said;
}

struct TwoMembers {
  TwoMembers() {
    order.gen = MeshGeneration(1);
    order.plan.programs = {"eval", "init", "step"};
    members.resize(2);
    members[0].worker = "w0";
    members[1].worker = "w1";
    // Launches 3 to 6, of which the second member has not heard of the last one.
    members[0].held =
        Saying(3, {StepsTold(3, 2), StepsTold(4, 3), StepsTold(5, 4), StepsTold(6, 5)}, 3);
    members[1].held = Saying(4, {StepsTold(4, 3), StepsTold(5, 4)}, 1);
  }
  std::string Error() {
    const auto known = Reconcile(order, members);
    return known.has_value() ? "" : known.error().message();
  }

  MeshOrder order = {};
  std::vector<MeshMember> members;
};

TEST(Reconcile, PutsTogetherWhatMembersKnow) {
  TwoMembers mesh;
  const auto known = Reconcile(mesh.order, mesh.members);
  ASSERT_TRUE(known.has_value()) << known.error();
  EXPECT_EQ(known->first, LaunchSeq(4));
  ASSERT_THAT(known->launches, SizeIs(3));
  EXPECT_EQ(known->launches[2].launch, (PlannedLaunch{"step", 5, 1}));
  EXPECT_EQ(HeardBy(*mesh.members[1].held), LaunchSeq(5));
}

TEST(Reconcile, NothingWasTold) {
  TwoMembers mesh;
  mesh.members[0].held = Saying(1, {}, 0);
  mesh.members[1].held = Saying(1, {}, 0);
  const auto known = Reconcile(mesh.order, mesh.members);
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->first, LaunchSeq(1));
  EXPECT_THAT(known->launches, SizeIs(0));
}

// Found by a random history: the member that had not heard of it was sent to no checkpoint.
TEST(Reconcile, ARestoreFromMemoryThatNotAllWereToldOfCannotBeRepeated) {
  TwoMembers mesh;
  mesh.order.checkpoints.start.step = 4;
  proto::ToldLaunch restore{LaunchSeq(1), proto::ToldKind::kRestore, 0, 0, 0, false};
  mesh.members[0].held = Saying(1, {restore}, 0);
  mesh.members[1].held = Saying(1, {}, 0);
  EXPECT_THAT(mesh.Error(), HasSubstr("not all workers were told of it"));
  mesh.order.checkpoints.start.checkpoint.path = "job/1/step-00000004";
  EXPECT_EQ(mesh.Error(), "") << "a checkpoint is where it was";
  mesh.order.checkpoints.start.checkpoint.path.clear();
  mesh.members[1].held = Saying(1, {restore}, 0);
  EXPECT_EQ(mesh.Error(), "") << "all have what they need";
}

TEST(Reconcile, WhatDoesNotFitIsAnError) {
  TwoMembers mesh;
  mesh.members[1].held->launches[1].first_step = 7;
  EXPECT_THAT(mesh.Error(),
              HasSubstr("worker 'w1' was told does not fit: launch 5 is another one"));
  mesh = TwoMembers();
  mesh.members[1].held->launches[1].seq = LaunchSeq(6);
  EXPECT_THAT(mesh.Error(), HasSubstr("launch 6 in the place of 5"));
  mesh = TwoMembers();
  mesh.members[0].held->done[2].launch_seq = LaunchSeq(6);
  EXPECT_THAT(mesh.Error(), HasSubstr("launch 6 is done in the place of 5"));
  mesh = TwoMembers();
  mesh.members[0].held->first_seq = LaunchSeq(0);
  EXPECT_THAT(mesh.Error(), HasSubstr("before the first one"));
  mesh = TwoMembers();
  mesh.members[0].held->launches[1].program = 3;
  mesh.members[1].held->launches[0].program = 3;
  EXPECT_THAT(mesh.Error(), HasSubstr("of program 3"));
  mesh = TwoMembers();
  mesh.members[0].held = Saying(6, {StepsTold(6, 5)}, 0);
  EXPECT_THAT(mesh.Error(), HasSubstr("it has not done launch 5, which others have forgotten"));
}

TEST(Reconcile, ACallOfAClientThatNotAllHaveHeardOfIsLost) {
  TwoMembers mesh;
  mesh.members[0].held->launches[3].asked = true;
  EXPECT_THAT(mesh.Error(), HasSubstr("launch 6 is a client's"));
  mesh.members[1].held->launches.push_back(mesh.members[0].held->launches[3]);
  EXPECT_EQ(mesh.Error(), "") << "all will do it";
}

// ---- The driver behind those launches -----------------------------------------------------------

ir::TrainSpec TenSteps() {
  ir::TrainSpec train;
  train.steps = 10;
  train.steps_per_launch = 2;
  train.validate_every = 4;
  train.validation_batches = 1;
  return train;
}

proto::StepReport Report(int64_t step) {
  return {step, 0.1, {{"loss", 1}, {"loss_sum", 3}, {"count", 1}}};
}

// What is told of these launches, as steps.
std::vector<int64_t> Told(TrainDriver& driver, const std::vector<ResumedLaunch>& launches) {
  std::vector<int64_t> told;
  for (const ResumedLaunch& each : launches) {
    std::vector<proto::StepReport> reports;
    for (int64_t i = 0; i < each.launch.count; ++i) {
      reports.push_back(Report(each.launch.first_step + i));
    }
    for (const auto& step : driver.On(each.launch, reports).steps) told.push_back(step.step);
  }
  return told;
}

const std::vector<ResumedLaunch> kLaunches = {{{"step", 2, 2}, false},
                                              {{"eval", 0, 1}, false},
                                              {{"", 0, 0}, true},
                                              {{"step", 4, 2}, false},
                                              {{"", 6, 0, LaunchKind::kSave}, false}};

TEST(ResumedDriver, TellsWhatNobodyWasToldAndGoesOn) {
  for (const int64_t told : {2, 3, 4, 5, 6}) {
    SCOPED_TRACE(told);
    ir::CheckpointSpec checkpoint;
    checkpoint.enable = true;
    checkpoint.interval = 6;
    TrainDriver driver(TenSteps(), true, checkpoint, {}, told);
    ASSERT_TRUE(driver.Resume(kLaunches, false).ok());
    std::vector<int64_t> rest;
    for (int64_t step = told; step < 6; ++step) rest.push_back(step);
    EXPECT_EQ(Told(driver, kLaunches), rest);
    EXPECT_EQ(driver.Next(), (PlannedLaunch{"step", 6, 2}));
    EXPECT_EQ(driver.Next(), (PlannedLaunch{"eval", 0, 1}));
  }
}

TEST(ResumedDriver, WhatTheWorkersHaveForgottenIsAnError) {
  TrainDriver driver(TenSteps(), true, {}, {}, 1);
  EXPECT_THAT(driver.Resume(kLaunches, false).message(), HasSubstr("what ran after step 1"));
  TrainDriver odd(TenSteps(), true, {}, {}, 2);
  EXPECT_FALSE(odd.Resume({{{"step", 2, 2}, false}, {{"step", 4, 2}, false}}, false).ok())
      << "a validation is missing";
}

TEST(ResumedDriver, BeginsWhereNothingWasLaunched) {
  TrainDriver driver(TenSteps(), true);
  ASSERT_TRUE(driver.Resume({}, true).ok());
  EXPECT_EQ(driver.Next()->program, "init");
  TrainDriver filled(TenSteps(), true);
  ASSERT_TRUE(filled.Resume({{{"init", 0, 1}, false}}, true).ok());
  EXPECT_EQ(filled.Next(), (PlannedLaunch{"step", 0, 2}));
}

}  // namespace
}  // namespace meshwright::controller
