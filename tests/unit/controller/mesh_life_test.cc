// One mesh generation by itself: no job, no queue, no cluster.
#include "controller/mesh_life.h"

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
using ::testing::IsEmpty;

constexpr MeshGeneration kGen{7};

MeshLimits ShortLimits() {
  MeshLimits limits;
  limits.election_ms = 500;
  limits.abort_deadline_ms = 3000;
  limits.load_deadline_ms = 10'000;
  limits.release_deadline_ms = 20'000;
  return limits;
}

// Worker "a" with ranks 0 and 2, "b" with rank 1, which alone has weights to save.
MeshOrder OrderOfTwo() {
  MeshOrder order;
  order.gen = kGen;
  order.job = JobId(3);
  order.plan.programs = {"init", "step"};
  order.plan.devices.resize(3);
  order.plan.devices[1].saved_slots = {"w"};
  MeshMember a;
  a.worker = "a";
  a.session = SessionId(10);
  a.ranks = {0, 2};
  a.local_devices = {4, 5};
  MeshMember b;
  b.worker = "b";
  b.session = SessionId(11);
  b.ranks = {1};
  b.local_devices = {0};
  order.members = {a, b};
  return order;
}

struct MeshWords {
  std::string operator()(const MeshSend& send) const {
    return std::string(proto::KindName(send.body)) + ">" + std::to_string(send.session.value());
  }
  std::string operator()(const MeshActivated&) const { return "activated"; }
  std::string operator()(const MeshLaunched&) const { return "launched"; }
  std::string operator()(const MeshWantsWork&) const { return "wants work"; }
  std::string operator()(const MeshDataLost&) const { return "data lost"; }
  std::string operator()(const MeshAborts&) const { return "aborts"; }
  std::string operator()(const MeshWeights& weights) const {
    static constexpr const char* kNames[] = {"open", "finish", "saved", "discard"};
    return kNames[static_cast<size_t>(weights.step)];
  }
  std::string operator()(const MeshDevicesFreed& freed) const { return "freed " + freed.worker; }
  template <typename Other>
  std::string operator()(const Other&) const {
    return "other";
  }
};

// What a step sends and says: "LoadMesh>10", "activated", "FAILED".
std::vector<std::string> Said(const MeshStep& step) {
  std::vector<std::string> said;
  for (const MeshEffect& effect : step.effects) said.push_back(std::visit(MeshWords{}, effect));
  if (step.outcome == MeshOutcome::kFinished) said.push_back("FINISHED");
  if (step.outcome == MeshOutcome::kFailed) said.push_back("FAILED");
  if (step.all_freed) said.push_back("GONE");
  return said;
}

class MeshScene {
 public:
  MeshScene() : life_(OrderOfTwo(), ShortLimits(), 0) {}

  MeshStep Feed(const MeshInput& input) { return life_.Step(input, now_ms); }
  MeshStep Report(uint64_t session, proto::UpBody body) {
    return Feed(MeshReport{SessionId(session), std::move(body)});
  }
  // Both members have loaded and connected.
  void Activate() {
    Feed(MeshBegin{});
    for (const uint64_t session : {10, 11}) Report(session, proto::Loaded{kGen, {}});
    for (const uint64_t session : {10, 11}) Report(session, proto::CommUp{kGen, {}});
    ASSERT_EQ(state().phase, MeshPhase::kActive);
  }
  const MeshState& state() const { return life_.state(); }

  int64_t now_ms = 0;

 private:
  MeshLife life_;
};

proto::LaunchDone DoneIn(double seconds, const std::string& value) {
  proto::LaunchDone done{kGen, LaunchSeq(1), {}, {}};
  done.reports.push_back({});
  done.reports[0].seconds = seconds;
  done.reports[0].values[value] = seconds;
  return done;
}

TEST(MeshLife, GoesFromTheOrderToTheLastReleaseInOrder) {
  MeshScene scene;
  const MeshStep begun = scene.Feed(MeshBegin{});
  EXPECT_THAT(Said(begun), ElementsAre("LoadMesh>10", "LoadMesh>11"));
  const auto& load = std::get<proto::LoadMesh>(std::get<MeshSend>(begun.effects[0]).body);
  ASSERT_EQ(load.ranks.size(), 2u);
  EXPECT_EQ(load.ranks[1].rank, 2);
  EXPECT_EQ(load.ranks[1].local_device, 5);

  EXPECT_THAT(Said(scene.Report(11, proto::Loaded{kGen, {}, "of b"})), IsEmpty());
  const MeshStep loaded = scene.Report(10, proto::Loaded{kGen, {}, "of a"});
  EXPECT_THAT(Said(loaded), ElementsAre("Connect>10", "Connect>11"));
  EXPECT_THAT(std::get<proto::Connect>(std::get<MeshSend>(loaded.effects[0]).body).invitations,
              ElementsAre("of a", "of b"));
  EXPECT_THAT(Said(scene.Report(10, proto::CommUp{kGen, {}})), IsEmpty());
  EXPECT_THAT(Said(scene.Report(11, proto::CommUp{kGen, {}})),
              ElementsAre("activated", "wants work"));

  EXPECT_THAT(Said(scene.Feed(MeshLaunch{{PlannedLaunch{"step", 40, 1}, {}}})),
              ElementsAre("Launch>10", "Launch>11"));
  EXPECT_THAT(Said(scene.Report(10, DoneIn(2, "loss"))), IsEmpty());
  EXPECT_EQ(scene.Report(10, DoneIn(2, "loss")).stale, 1) << "it has reported before";
  const MeshStep done = scene.Report(11, DoneIn(1, "norm"));
  EXPECT_THAT(Said(done), ElementsAre("launched", "wants work"));
  const proto::StepReport& report = std::get<MeshLaunched>(done.effects[0]).result.reports.at(0);
  EXPECT_EQ(report.step, 40);
  EXPECT_EQ(report.seconds, 2) << "the slowest member's";
  EXPECT_EQ(report.values.size(), 2u);

  EXPECT_THAT(Said(scene.Feed(MeshClose{true})), ElementsAre("open"));
  EXPECT_THAT(Said(scene.Feed(MeshWeightsFile{false, OkStatus()})), ElementsAre("SaveWeights>11"));
  EXPECT_THAT(Said(scene.Report(11, proto::WeightsSaved{kGen, {}})), ElementsAre("finish"));
  EXPECT_THAT(Said(scene.Feed(MeshWeightsFile{true, OkStatus()})),
              ElementsAre("saved", "ReleaseMesh>10", "ReleaseMesh>11", "FINISHED"));
  EXPECT_THAT(Said(scene.Report(10, proto::MeshReleased{kGen})), ElementsAre("freed a"));
  EXPECT_FALSE(scene.state().Hears(SessionId(10)));
  EXPECT_THAT(Said(scene.Report(11, proto::MeshReleased{kGen})), ElementsAre("freed b", "GONE"));
}

TEST(MeshLife, ABetterCauseThatComesInTimeIsElected) {
  MeshScene scene;
  scene.Activate();
  scene.Feed(MeshLaunch{{PlannedLaunch{"step", 0, 1}, {}}});
  const auto victim = MakeError(ErrorKind::kStepFailed, Unavailable("peer gone"), "a");
  ASSERT_TRUE(victim.MayBeVictim());
  EXPECT_THAT(Said(scene.Report(10, proto::MeshError{kGen, victim})),
              ElementsAre("aborts", "AbortMesh>10", "AbortMesh>11"));
  EXPECT_TRUE(scene.state().launches.empty());
  EXPECT_THAT(Said(scene.Report(10, proto::MeshReleased{kGen})), ElementsAre("freed a"));

  scene.now_ms = 100;
  const auto lost = MakeError(ErrorKind::kWorkerLost, Unavailable("b was lost"), "b");
  const MeshStep end = scene.Feed(MeshMemberLost{SessionId(11), lost});
  EXPECT_THAT(Said(end), ElementsAre("FAILED", "GONE")) << "everyone has let go, one is to blame";
  EXPECT_EQ(end.cause.kind, ErrorKind::kWorkerLost);
  EXPECT_EQ(end.cause.message, "b was lost (1 other errors followed from it)");
}

TEST(MeshLife, APossibleVictimIsTheCauseWhenNoBetterOneCame) {
  MeshScene scene;
  scene.Activate();
  scene.Feed(MeshFault{MakeError(ErrorKind::kStepFailed, Unavailable("peer gone"), "a")});
  scene.Report(10, proto::MeshReleased{kGen});
  EXPECT_THAT(Said(scene.Report(11, proto::MeshReleased{kGen})), ElementsAre("freed b"));
  scene.now_ms = 499;
  EXPECT_THAT(Said(scene.Feed(MeshTick{})), IsEmpty());
  scene.now_ms = 500;
  const MeshStep end = scene.Feed(MeshTick{});
  EXPECT_THAT(Said(end), ElementsAre("FAILED", "GONE"));
  EXPECT_EQ(end.cause.message, "peer gone");
}

TEST(MeshLife, AMemberThatNeverLetsGoDoesNotHoldUpTheEndAndCountsAsLost) {
  MeshScene scene;
  scene.Activate();
  scene.Feed(MeshFault{MakeError(ErrorKind::kCancelled, Cancelled("by the user"))});
  scene.Report(10, proto::MeshReleased{kGen});
  scene.now_ms = 3000;
  EXPECT_THAT(Said(scene.Feed(MeshTick{})), ElementsAre("FAILED")) << "b still has its devices";
  scene.now_ms = 22'999;
  EXPECT_TRUE(scene.Feed(MeshTick{}).deaf.empty());
  scene.now_ms = 23'000;
  const MeshStep late = scene.Feed(MeshTick{});
  ASSERT_EQ(late.deaf.size(), 1u);
  EXPECT_EQ(late.deaf[0].session, SessionId(11));
  EXPECT_THAT(late.deaf[0].why, HasSubstr("did not let go of mesh generation 7 (job 3) within 20"));
  const auto lost = MakeError(ErrorKind::kWorkerLost, Unavailable("deaf"), "b");
  EXPECT_THAT(Said(scene.Feed(MeshMemberLost{SessionId(11), lost})), ElementsAre("GONE"));
}

TEST(MeshLife, WhoIsLateToLoadIsNamed) {
  MeshScene scene;
  scene.Feed(MeshBegin{});
  scene.Report(10, proto::Loaded{kGen, {}});
  scene.now_ms = 10'000;
  EXPECT_THAT(Said(scene.Feed(MeshTick{})), ElementsAre("aborts", "AbortMesh>10", "AbortMesh>11"));
  EXPECT_EQ(scene.state().election.leader().kind, ErrorKind::kLoadFailed);
  EXPECT_EQ(scene.state().election.leader().worker, "b");
}

TEST(MeshLife, AMemberThatLetsGoUnaskedFailsIt) {
  MeshScene scene;
  scene.Activate();
  EXPECT_THAT(Said(scene.Report(10, proto::MeshReleased{kGen})),
              ElementsAre("freed a", "aborts", "AbortMesh>11"));
  EXPECT_EQ(scene.state().election.leader().kind, ErrorKind::kProtocol);
}

}  // namespace
}  // namespace meshwright::controller
