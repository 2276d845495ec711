#include "controller/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/admission.h"
#include "controller/kind_placement.h"

namespace meshwright::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

proto::Register Info(const std::string& name, int devices) {
  proto::Register info;
  info.name = name;
  info.host_id = "host of " + name;
  info.address = "127.0.0.1:1";
  info.devices = devices;
  info.host_cores = 8;
  return info;
}

// Workers "a" with one device and "b" with two, both heard of at 100 ms.
Membership TwoWorkers() {
  Membership members;
  members.Admit(SessionId(1), Info("a", 1), nullptr, 100);
  members.Admit(SessionId(2), Info("b", 2), nullptr, 100);
  for (const uint64_t session : {1, 2}) {
    EXPECT_TRUE(members.Apply(*members.Of(SessionId(session)), WorkerEvent::kSeen, 100));
  }
  return members;
}

TEST(Admission, AWorkerThatOtherHostsCannotReachIsRefusedWithTheFix) {
  Membership members;
  proto::Register far = Info("far", 1);
  EXPECT_TRUE(CheckReach(far, members).ok()) << "nobody else is there";
  proto::Register near = Info("near", 1);
  near.address = "10.0.0.1:7";
  members.Admit(SessionId(1), near, nullptr, 100);
  const Status hidden = CheckReach(far, members);
  EXPECT_THAT(hidden.message(), HasSubstr("worker 'far' can be reached at 127.0.0.1:1 only"));
  EXPECT_THAT(hidden.message(), HasSubstr("--advertise"));
  far.host_id = near.host_id;
  EXPECT_TRUE(CheckReach(far, members).ok()) << "it is on the same host";
  members.Admit(SessionId(2), far, nullptr, 100);
  proto::Register third = Info("third", 1);
  third.address = "10.0.0.3:7";
  EXPECT_THAT(CheckReach(third, members).message(), HasSubstr("start 'far' with"));
}

TEST(Membership, KnowsWorkersByNameAndWhileConnectedBySession) {
  Membership members = TwoWorkers();
  EXPECT_EQ(members.Of(SessionId(2)), &members.At("b"));
  EXPECT_EQ(members.Of(SessionId(3)), nullptr);
  EXPECT_EQ(members.Named("c"), nullptr);
  EXPECT_TRUE(members.Disconnect(members.At("b"), WorkerEvent::kClosed, 200));
  EXPECT_EQ(members.changed_ms(), 200);
  EXPECT_FALSE(members.Knows(SessionId(2)));
  EXPECT_EQ(members.Named("b")->state, WorkerState::kLost);
  EXPECT_FALSE(members.Disconnect(members.At("b"), WorkerEvent::kClosed, 300)) << "it has none";
  members.Admit(SessionId(3), Info("b", 4), nullptr, 400);
  EXPECT_EQ(members.Of(SessionId(3))->device_job.size(), 4u);
}

TEST(Membership, SilenceMakesSuspectsAndAStallIsForgiven) {
  Membership members = TwoWorkers();
  members.At("b").last_seen_ms = 1000;
  EXPECT_THAT(members.FindSilent(500, 2000, 1100), IsEmpty());
  EXPECT_EQ(members.At("a").state, WorkerState::kSuspect);
  EXPECT_EQ(members.At("b").state, WorkerState::kReady);
  EXPECT_EQ(members.changed_ms(), 1100);
  EXPECT_THAT(members.FindSilent(500, 2000, 2200), ElementsAre("a"));
  members.ForgiveStall(1500, 2200);
  EXPECT_EQ(members.At("a").last_seen_ms, 1600);
  EXPECT_EQ(members.At("b").last_seen_ms, 2200) << "not later than now";
}

TEST(Membership, ForgetsTheLongestGone) {
  Membership members = TwoWorkers();
  members.At("b").last_seen_ms = 50;
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(members.Disconnect(members.At(name), WorkerEvent::kClosed, 200));
  }
  members.ForgetGone(2);
  EXPECT_EQ(members.all().size(), 2u);
  members.ForgetGone(1);
  EXPECT_EQ(members.Named("b"), nullptr);
  EXPECT_NE(members.Named("a"), nullptr);
}

TEST(Membership, CountsDevicesByOwner) {
  Membership members = TwoWorkers();
  EXPECT_EQ(DeviceCount(members, "cpu"), 3);
  EXPECT_EQ(DeviceCount(members, "cuda"), 0);
  members.SetOwner("b", 1, JobId(7));
  members.SetOwner("a", 0, JobId(8));
  ASSERT_EQ(members.FreeDevices("cpu").size(), 1u);
  EXPECT_EQ(members.FreeDevices("cpu")[0].worker, "b");
  EXPECT_EQ(members.Returning({{"a", 0, JobId(7)}}, "cpu").count, 1);
  EXPECT_THAT(
      members.Returning({{"a", 0, JobId(7)}, {"gone", 0, JobId(9)}, {"a", 1, JobId(8)}}, "cpu")
          .jobs,
      ElementsAre(7, 8));
  members.SetOwner("b", 1, JobId(0));
  EXPECT_EQ(members.FreeDevices("cpu").size(), 2u);
  EXPECT_EQ(HostCores(members, "host of a"), 8);
  EXPECT_TRUE(members.Apply(members.At("a"), WorkerEvent::kSilent, 500));
  EXPECT_EQ(DeviceCount(members, "cpu"), 3) << "a suspect may come back";
}

TEST(MembershipDeathTest, ADeviceHasOneOwner) {
  Membership members = TwoWorkers();
  members.SetOwner("b", 1, JobId(7));
  EXPECT_DEATH(members.SetOwner("b", 1, JobId(8)), "is job 7's");
  EXPECT_DEATH(members.SetOwner("b", 2, JobId(8)), "device 2 of the 2 of worker 'b'");
  EXPECT_DEATH((void)members.At("c"), "worker 'c' is not listed");
}

TEST(SightOf, ChangesWithWhatPlacingAsksFor) {
  Membership members = TwoWorkers();
  const std::string before = SightOf({members, {}}, true);
  EXPECT_THAT(before, HasSubstr("cpu: 3 of 3 free"));
  EXPECT_NE(SightOf({members, {}}, false), before);
  members.SetOwner("b", 1, JobId(7));
  EXPECT_THAT(SightOf({members, {{"a", 0, JobId(7)}}}, true),
              HasSubstr("cpu: 2 of 3 free, 1 return from 7"));
}

TEST(CheckRegistration, NamesTheWorkerAndWhatItSays) {
  EXPECT_TRUE(CheckRegistration(Info("a", 1)).ok());
  EXPECT_THAT(CheckRegistration(Info("a", 0)).message(), HasSubstr("'a' registers 0 devices"));
  proto::Register loud = Info("a", 1);
  loud.version = "1\a";
  EXPECT_THAT(CheckRegistration(loud).message(), HasSubstr("control characters"));
  proto::Register rooted = Info("a", 1);
  rooted.checkpoint_roots.assign(65, {"r", "/r"});
  EXPECT_THAT(CheckRegistration(rooted).message(), HasSubstr("65 checkpoint roots"));
  rooted.checkpoint_roots = {{"r", std::string(5000, 'x')}};
  EXPECT_THAT(CheckRegistration(rooted).message(), HasSubstr("checkpoint roots"));
}

}  // namespace
}  // namespace meshwright::controller
