// What becomes of a job whose run has failed, as pure functions.
#include "controller/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::MakeError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kDayMs = 86'400'000;

// A run that has worked, and what came of it.
RunFailure Failed(ErrorKind kind, const Status& status, int64_t steps_done = 7) {
  return {true, true, steps_done, MakeError(kind, status, "w1")};
}
RunFailure Lost() { return Failed(ErrorKind::kWorkerLost, Unavailable("gone")); }

struct Scene {
  ir::JobRequest job;
  RecoveryHistory history;
  int64_t now_unix_ms = 1'000;

  Judgement Judge(const RunFailure& failure) {
    return JudgeFailure(failure, job, now_unix_ms, history);
  }
  AfterFailure After(const RunFailure& failure) { return Judge(failure).after; }
};

TEST(JudgeFailure, ALossGivesTheJobAnotherRun) {
  Scene scene;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kWorkerStopped, Aborted("stopped"))),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.history.unix_ms.size(), 2u);
}

TEST(JudgeFailure, DevicesThatWereLostBeforeAnyoneWasToldGiveItItsPlaceBack) {
  for (const bool enable : {false, true}) {
    Scene scene;
    scene.job.fault_tolerance.enable = enable;
    RunFailure early = Lost();
    early.was_begun = false;
    EXPECT_EQ(scene.After(early), AfterFailure::kPlanAgain);
    EXPECT_TRUE(scene.history.unix_ms.empty()) << "nothing that counts";
    early.cause = MakeError(ErrorKind::kPlanFailed, Internal("a defect"));
    EXPECT_EQ(scene.After(early), AfterFailure::kEndJob);
  }
}

TEST(JudgeFailure, WhatTheUserWantsOrMadeEndsTheJob) {
  Scene scene;
  EXPECT_EQ(scene.After(Failed(ErrorKind::kCancelled, Cancelled("by the user"))),
            AfterFailure::kEndJob);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kDiverged, Aborted("the loss is nan"))),
            AfterFailure::kEndJob);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed,
                               InvalidArgument("token 70 of 64").WithBlame(Blame::kUser))),
            AfterFailure::kEndJob);
  for (const ErrorKind kind : {ErrorKind::kControllerStopped, ErrorKind::kStoreFailed,
                               ErrorKind::kProtocol, ErrorKind::kInfeasible}) {
    EXPECT_EQ(scene.After(Failed(kind, Unavailable("no"))), AfterFailure::kEndJob)
        << proto::ErrorKindName(kind);
  }
  EXPECT_TRUE(scene.history.unix_ms.empty());
}

TEST(JudgeFailure, BeforeAnyWorkOnlyALossIsNobodysFault) {
  Scene scene;
  RunFailure fresh = Failed(ErrorKind::kLoadFailed, ResourceExhausted("needs 3 GiB"), 0);
  fresh.was_active = false;
  EXPECT_EQ(scene.After(fresh), AfterFailure::kEndJob);
  fresh.was_active = true;
  EXPECT_EQ(scene.After(fresh), AfterFailure::kRecover) << "it has loaded before";
  fresh = Lost();
  fresh.was_active = false;
  EXPECT_EQ(scene.After(fresh), AfterFailure::kRecover);
}

TEST(JudgeFailure, ItsOwnFaultTwiceAtOneStepEndsTheJobAndSaysSo) {
  Scene scene;
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Internal("kernel"), 7)),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kRecover) << "a loss between them changes nothing";
  const Judgement second = scene.Judge(Failed(ErrorKind::kStepFailed, Internal("kernel"), 7));
  EXPECT_EQ(second.after, AfterFailure::kEndJob);
  EXPECT_THAT(second.why, HasSubstr("failed twice in the same way after step 7"));
}

TEST(JudgeFailure, ReportsOfOneLaunchMayBeMissingFromOneOfTheTwo) {
  Scene scene;
  scene.job.train.steps_per_launch = 4;
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Internal("kernel"), 12)),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Internal("kernel"), 7)),
            AfterFailure::kRecover)
      << "another step";
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Internal("kernel"), 11)),
            AfterFailure::kEndJob);
}

TEST(JudgeFailure, AnotherKindOrAPeersDeathIsNotTheSameFault) {
  Scene scene;
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Internal("kernel"))),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Unavailable("a peer closed"))),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, Internal("ECC").WithBlame(Blame::kInfra))),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kSaveFailed, ResourceExhausted("disk full"))),
            AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Failed(ErrorKind::kSaveFailed,
                               ResourceExhausted("disk full").WithBlame(Blame::kInfra))),
            AfterFailure::kEndJob)
      << "to train again for a disk that is full is for nothing";
}

TEST(JudgeFailure, WhatNeverComesInTimeIsItsOwnFault) {
  for (const Status& why :
       {DeadlineExceeded("rank 0 did not come"), Aborted("its actor is dead")}) {
    Scene scene;
    EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, why)), AfterFailure::kRecover);
    EXPECT_EQ(scene.After(Failed(ErrorKind::kStepFailed, why)), AfterFailure::kEndJob);
  }
}

TEST(JudgeFailure, AnExecutorThatEndsTwiceAtOneStepEndsTheJobUnlessTheMachineIsToBlame) {
  for (const Blame blame : {Blame::kUnspecified, Blame::kInfra}) {
    Scene scene;
    const RunFailure crash =
        Failed(ErrorKind::kExecutorLost, Aborted("signal 11").WithBlame(blame));
    EXPECT_EQ(scene.After(crash), AfterFailure::kRecover);
    EXPECT_EQ(scene.After(crash),
              blame == Blame::kInfra ? AfterFailure::kRecover : AfterFailure::kEndJob);
  }
}

TEST(HostIsToBlame, ForDevicesAndDisksAndNothingElse) {
  const auto blames = [](ErrorKind kind, Blame blame, const char* worker = "w1") {
    return HostIsToBlame(MakeError(kind, Internal("x").WithBlame(blame), worker));
  };
  EXPECT_TRUE(blames(ErrorKind::kStepFailed, Blame::kHardware));
  EXPECT_TRUE(blames(ErrorKind::kLoadFailed, Blame::kInfra)) << "the disk of its cache";
  EXPECT_FALSE(blames(ErrorKind::kStepFailed, Blame::kHardware, "")) << "nobody knows whose";
  EXPECT_FALSE(blames(ErrorKind::kExecutorLost, Blame::kInfra)) << "a kill";
  EXPECT_FALSE(blames(ErrorKind::kExecutorLost, Blame::kOverload)) << "want of memory";
  EXPECT_FALSE(blames(ErrorKind::kExecutorLost, Blame::kInternal)) << "a defect";
  EXPECT_FALSE(blames(ErrorKind::kStepFailed, Blame::kUnspecified));
  EXPECT_FALSE(blames(ErrorKind::kLoadFailed, Blame::kUnspecified)) << "what the job asked for";
  EXPECT_FALSE(blames(ErrorKind::kWorkerLost, Blame::kInfra));
}

TEST(JudgeFailure, ADeviceThatFailsIsTheJobsFaultOnlyWhenAnotherOneDoesAtTheSameStep) {
  Scene scene;
  const auto broken = [](const char* worker, int64_t step) {
    RunFailure failure =
        Failed(ErrorKind::kStepFailed, Unavailable("device").WithBlame(Blame::kHardware), step);
    failure.cause.worker = worker;
    return failure;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scene.After(broken("w1", 7)), AfterFailure::kRecover);
  EXPECT_EQ(scene.After(broken("w2", 20)), AfterFailure::kRecover) << "at another step";
  const Judgement own = scene.Judge(broken("w1", 20));
  EXPECT_EQ(own.after, AfterFailure::kEndJob);
  EXPECT_TRUE(own.is_own);
}

TEST(JudgeFailure, AMachineThatCannotBeginIsNotTheJobsFault) {
  Scene scene;
  RunFailure early = Failed(ErrorKind::kLoadFailed, ResourceExhausted("disk full"), 0);
  early.was_active = false;
  EXPECT_EQ(scene.After(early), AfterFailure::kEndJob);
  early.cause.blame = Blame::kInfra;
  EXPECT_EQ(scene.After(early), AfterFailure::kRecover);
}

TEST(JudgeFailure, SoManyRecoveriesADay) {
  Scene scene;
  scene.job.fault_tolerance.max_recoveries = 3;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(scene.After(Lost()), AfterFailure::kRecover);
    scene.now_unix_ms += 1000;
  }
  const Judgement fourth = scene.Judge(Lost());
  EXPECT_EQ(fourth.after, AfterFailure::kEndJob);
  EXPECT_THAT(fourth.why, HasSubstr("recovered 3 times within a day"));
  EXPECT_THAT(fourth.why, HasSubstr("fault_tolerance.max_recoveries"));
  // The first one is a day old.
  scene.now_unix_ms = 1'000 + kDayMs - 1;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kEndJob);
  scene.now_unix_ms = 1'000 + kDayMs;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kRecover);
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kEndJob) << "the others are not";
}

TEST(JudgeFailure, JobsThatAreNotToRecoverEnd) {
  Scene scene;
  scene.job.fault_tolerance.enable = false;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kEndJob);
  scene.job.fault_tolerance.enable = true;
  scene.job.driver.kind = ir::DriverKind::kClient;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kEndJob) << "its client has seen what its calls did";
  scene.job.driver.kind = ir::DriverKind::kEvaluate;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kRecover);
  scene.job.fault_tolerance.max_recoveries = 0;
  EXPECT_EQ(scene.After(Lost()), AfterFailure::kEndJob);
}

// ---- Seats --------------------------------------------------------------------------------------

// Workers of two devices each, and what a job had on them.
struct Seats {
  Membership members;
  Recovery recovery;
  uint64_t sessions = 0;

  Seats() { recovery.kind = "cpu"; }
  void Join(const std::string& name, const std::string& kind = "cpu", int64_t memory = 100) {
    proto::Register info;
    info.name = name;
    info.host_id = "host";
    info.devices = 2;
    info.memory_bytes = memory;
    info.device_kind = kind;
    members.Admit(SessionId(++sessions), info, nullptr, 0);
    EXPECT_TRUE(members.Apply(members.At(name), WorkerEvent::kSeen, 0));
  }
  void Lose(const std::string& name) {
    EXPECT_TRUE(members.Disconnect(members.At(name), WorkerEvent::kClosed, 0));
  }
  std::optional<std::vector<RankPlace>> Find() const { return FindSeats(recovery, members); }
};

TEST(FindSeats, TheDevicesOfBeforeByRank) {
  Seats seats;
  seats.Join("a");
  seats.Join("b");
  seats.recovery.ranks = {{"b", 1}, {"a", 0}, {"b", 0}};
  EXPECT_EQ(seats.Find(), seats.recovery.ranks);
  seats.Lose("b");
  seats.Join("b");
  EXPECT_EQ(seats.Find(), seats.recovery.ranks) << "its worker is there again";
}

TEST(FindSeats, OthersInThePlaceOfThoseThatAreGone) {
  Seats seats;
  for (const char* name : {"a", "b", "c"}) seats.Join(name);
  seats.recovery.ranks = {{"b", 1}, {"a", 0}, {"b", 0}, {"a", 1}};
  seats.Lose("b");
  ASSERT_TRUE(seats.Find().has_value());
  EXPECT_THAT(*seats.Find(), ElementsAre(RankPlace{"c", 0}, RankPlace{"a", 0}, RankPlace{"c", 1},
                                         RankPlace{"a", 1}))
      << "who has its device keeps its rank";
}

TEST(FindSeats, ASpareDoesNotTakeTheDeviceOfALaterRank) {
  Seats seats;
  for (const char* name : {"a", "b"}) seats.Join(name);
  seats.recovery.ranks = {{"gone", 0}, {"a", 0}};
  EXPECT_THAT(*seats.Find(), ElementsAre(RankPlace{"a", 1}, RankPlace{"a", 0}));
}

TEST(FindSeats, NotOnTheWorkerWhoseMachineFailedUnlessThereIsNoOther) {
  Seats seats;
  for (const char* name : {"a", "b", "c"}) seats.Join(name);
  seats.recovery.ranks = {{"a", 0}, {"b", 0}};
  seats.recovery.avoid = "b";
  seats.members.SetOwner("a", 1, JobId(9));
  EXPECT_THAT(*seats.Find(), ElementsAre(RankPlace{"a", 0}, RankPlace{"c", 0}));
  for (const int device : {0, 1}) seats.members.SetOwner("c", device, JobId(9));
  EXPECT_EQ(seats.Find()->at(1).worker, "b");
}

TEST(FindSeats, NoneWhereThereAreNotEnough) {
  Seats seats;
  seats.Join("a");
  seats.recovery.ranks = {{"a", 0}, {"a", 1}, {"b", 0}};
  EXPECT_FALSE(seats.Find().has_value());
  seats.Join("b", "cuda");
  EXPECT_FALSE(seats.Find().has_value()) << "of another kind";
  seats.Join("c");
  EXPECT_TRUE(seats.Find().has_value());
  seats.members.SetOwner("a", 0, JobId(9));
  EXPECT_THAT(*seats.Find(), ElementsAre(RankPlace{"c", 0}, RankPlace{"a", 1}, RankPlace{"c", 1}))
      << "a device that has not been let go of";
  EXPECT_TRUE(seats.members.Apply(seats.members.At("c"), WorkerEvent::kSilent, 0));
  EXPECT_FALSE(seats.Find().has_value()) << "a suspect is no spare";
}

TEST(FindSeats, ASpareHasTheMemoryThatThePlanTakes) {
  Seats seats;
  seats.Join("a");
  seats.Join("small", "cpu", 49);
  seats.recovery.ranks = {{"a", 0}, {"b", 0}};
  seats.recovery.plan.device_memory_bytes = 50;
  seats.members.SetOwner("a", 1, JobId(9));
  EXPECT_FALSE(seats.Find().has_value());
  seats.Join("large", "cpu", 50);
  EXPECT_THAT(*seats.Find(), ElementsAre(RankPlace{"a", 0}, RankPlace{"large", 0}));
}

// ---- What it goes on from, and by ---------------------------------------------------------------

TEST(NewestStart, TheCheckpointOnRecordOrWhatTheJobSays) {
  ir::JobRequest job;
  JobRecord record;
  record.checkpoint_folder = {"shared", "gpt/7"};
  EXPECT_TRUE(NewestStart(job, record).empty());
  record.checkpoint_step = 0;
  EXPECT_EQ(NewestStart(job, record).step, 0) << "of no steps is a state, too";
  record.checkpoint_step = 120;
  const ir::StartPoint newest = NewestStart(job, record);
  EXPECT_EQ(newest.step, 120);
  EXPECT_EQ(newest.checkpoint, (ir::FolderRef{"shared", "gpt/7/step-00000120"}));

  job.start = {{"shared", "other/step-00000120"}, 120, {"head.*"}};
  EXPECT_EQ(NewestStart(job, record), job.start) << "nothing that is newer";
  record.checkpoint_step = 121;
  EXPECT_EQ(NewestStart(job, record).step, 121);
  EXPECT_TRUE(NewestStart(job, record).exclude.empty()) << "what started anew has been saved";
}

}  // namespace
}  // namespace meshwright::controller
