#include "worker/held_meshes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const MeshGeneration kGen(7);

proto::LoadMesh SomeLoad(int64_t grace_ms = 5000) {
  proto::LoadMesh load;
  load.mesh_gen = kGen;
  load.job = JobId(3);
  load.programs = {"init", "step"};
  load.orphan_grace_ms = grace_ms;
  return load;
}

proto::Launch Steps(uint64_t seq, int64_t first) {
  return {kGen, LaunchSeq(seq), 1, first, 1, {}, proto::Fetch::kNothing};
}
proto::LaunchDone Done(uint64_t seq) { return {kGen, LaunchSeq(seq), {}, {{0, 0.5, {}}}, {}}; }

TEST(MeshLog, KnowsWhatWasToldAndWhatCameOfIt) {
  MeshLog log(SomeLoad());
  log.Note(proto::DownBody(Steps(1, 0)));
  log.Note(proto::DownBody(Steps(2, 1)));
  log.Note(proto::DownBody(Steps(2, 1)));
  log.Note(proto::UpBody(Done(1)));
  log.Note(proto::DownBody(proto::SaveState{kGen, LaunchSeq(3), {}, "tmp", {}}));
  const proto::ResumeMesh resume = log.Resume();
  EXPECT_EQ(resume.first_seq, LaunchSeq(1));
  ASSERT_THAT(resume.launches, SizeIs(3)) << "a repeated one is nothing new";
  EXPECT_EQ(resume.launches[1].first_step, 1);
  EXPECT_EQ(resume.launches[2].kind, proto::ToldKind::kSave);
  EXPECT_EQ(resume.launches[2].first_step, 2) << "steps that are done";
  EXPECT_THAT(resume.done, SizeIs(1));
}

TEST(MeshLog, ForgetsOldLaunchesThatAreDoneAndNoOthers) {
  MeshLog log(SomeLoad());
  constexpr uint64_t kMany = MeshLog::kMostLaunches + 100;
  for (uint64_t seq = 1; seq <= kMany; ++seq) {
    log.Note(proto::DownBody(Steps(seq, 0)));
    log.Note(proto::UpBody(Done(seq)));
  }
  proto::ResumeMesh resume = log.Resume();
  EXPECT_THAT(resume.launches, SizeIs(MeshLog::kMostLaunches));
  EXPECT_EQ(resume.first_seq, LaunchSeq(101));
  EXPECT_EQ(resume.done.front().launch_seq, LaunchSeq(101));
  MeshLog stuck(SomeLoad());
  for (uint64_t seq = 1; seq <= kMany; ++seq) stuck.Note(proto::DownBody(Steps(seq, 0)));
  EXPECT_THAT(stuck.Resume().launches, SizeIs(kMany));
  MeshLog large(SomeLoad());
  for (uint64_t seq = 1; seq <= 8; ++seq) {
    large.Note(proto::DownBody(Steps(seq, 0)));
    proto::LaunchDone done = Done(seq);
    done.tensors = {{"y", {}, {}, std::string(MeshLog::kMostBytes / 2, 'x')}};
    large.Note(proto::UpBody(done));
  }
  EXPECT_THAT(large.Resume().launches, SizeIs(2));
}

TEST(MeshLog, IsHeldFromItsConnectionToItsEnd) {
  MeshLog log(SomeLoad());
  EXPECT_FALSE(log.can_be_held());
  log.Note(proto::UpBody(proto::CommUp{kGen, {}}));
  EXPECT_TRUE(log.can_be_held());
  log.Note(proto::DownBody(proto::ReleaseMesh{kGen}));
  EXPECT_FALSE(log.can_be_held());
  MeshLog failed(SomeLoad());
  failed.Note(proto::UpBody(proto::CommUp{
      kGen, proto::MakeError(proto::ErrorKind::kConnectFailed, Unavailable("no peer"))}));
  EXPECT_FALSE(failed.can_be_held());
}

// A worker's sessions as lists of what was said in them.
struct Sessions {
  HeldMeshes held{60'000};
  std::vector<proto::UpBody> said;
  HeldMeshes::Send send = [this](proto::UpBody body) { said.push_back(std::move(body)); };

  void Connect(const proto::LoadMesh& load) {
    held.Open(load, send);
    held.Say(kGen, proto::CommUp{kGen, {}});
    held.NoteTold(kGen, Steps(1, 0));
    said.clear();
  }
};

TEST(HeldMeshes, WhatIsSaidWithoutASessionIsSaidInTheNextOne) {
  Sessions sessions;
  sessions.Connect(SomeLoad());
  EXPECT_THAT(sessions.held.Part(0), IsEmpty());
  EXPECT_TRUE(sessions.held.any());
  sessions.held.Say(kGen, Done(1));
  EXPECT_THAT(sessions.said, IsEmpty());
  EXPECT_THAT(sessions.held.Listed(), ElementsAre(proto::HeldMesh{kGen, JobId(3)}));
  EXPECT_THAT(sessions.held.Resume({kGen}, sessions.send), IsEmpty());
  ASSERT_THAT(sessions.said, SizeIs(1));
  EXPECT_THAT(std::get<proto::ResumeMesh>(sessions.said[0]).done, SizeIs(1));
  sessions.held.Say(kGen, Done(2));
  EXPECT_THAT(sessions.said, SizeIs(2)) << "it goes on";
}

TEST(HeldMeshes, WhatTheControllerDoesNotListIsDropped) {
  Sessions sessions;
  sessions.Connect(SomeLoad());
  (void)sessions.held.Part(0);
  EXPECT_THAT(sessions.held.Resume({}, sessions.send), ElementsAre(kGen));
  EXPECT_THAT(sessions.said, IsEmpty());
  EXPECT_THAT(sessions.held.Listed(), IsEmpty());
}

TEST(HeldMeshes, WhatDiedMeanwhileSaysHow) {
  Sessions sessions;
  sessions.Connect(SomeLoad());
  (void)sessions.held.Part(0);
  const auto error = proto::MakeError(proto::ErrorKind::kExecutorLost, Unavailable("killed"));
  sessions.held.Say(kGen, proto::MeshError{kGen, error});
  sessions.held.Say(kGen, proto::MeshReleased{kGen});
  sessions.held.Close(kGen);
  EXPECT_FALSE(sessions.held.any());
  EXPECT_THAT(sessions.held.Listed(), SizeIs(1));
  (void)sessions.held.Resume({kGen}, sessions.send);
  ASSERT_THAT(sessions.said, SizeIs(3));
  EXPECT_EQ(std::get<proto::MeshError>(sessions.said[1]).error, error);
  EXPECT_TRUE(std::holds_alternative<proto::MeshReleased>(sessions.said[2]));
  EXPECT_THAT(sessions.held.Listed(), IsEmpty());
}

TEST(HeldMeshes, GraceIsTheShorterOfTheJobsAndTheWorkers) {
  Sessions sessions;
  sessions.Connect(SomeLoad(/*grace_ms=*/5000));
  (void)sessions.held.Part(1000);
  EXPECT_THAT(sessions.held.Expire(5999), IsEmpty());
  EXPECT_THAT(sessions.held.Expire(6000), ElementsAre(kGen));
  EXPECT_THAT(sessions.held.Listed(), IsEmpty());
  Sessions longer;
  longer.Connect(SomeLoad(/*grace_ms=*/500'000));
  (void)longer.held.Part(0);
  EXPECT_THAT(longer.held.Expire(59'999), IsEmpty());
  EXPECT_THAT(longer.held.Expire(60'000), ElementsAre(kGen));
}

TEST(HeldMeshes, WhatIsNotConnectedOrHasNoGraceIsNotHeld) {
  Sessions sessions;
  sessions.Connect(SomeLoad(/*grace_ms=*/0));
  EXPECT_THAT(sessions.held.Part(0), ElementsAre(kGen));
  Sessions loading;
  loading.held.Open(SomeLoad(), loading.send);
  EXPECT_THAT(loading.held.Part(0), ElementsAre(kGen));
}

}  // namespace
}  // namespace meshwright::worker
