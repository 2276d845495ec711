// How the NCCL fabric ends: orderly, by an abort, and when NCCL does not come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "base/log.h"
#include "tests/unit/collective/nccl_ranks.h"

namespace meshwright::collective {
namespace {

using namespace nccl_test;
using emulated::EmulatedNccl;
using nccl::Code;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What is in the devices and on the host for them.
std::map<std::string, int64_t> Alive(NcclHouse& house) {
  std::map<std::string, int64_t> alive;
  for (const char* kind : {"allocation", "host", "stream", "event"}) {
    alive[kind] = house.driver().alive(kind);
  }
  return alive;
}

// Sees the warning of an abort that waits no longer for calls inside NCCL.
class ForcedAbort {
 public:
  ForcedAbort() {
    SetLogSink([this](LogLevel, std::string_view line) {
      const bool warns = line.find("stuck inside a call of NCCL") != line.npos;
      if (warns && !std::exchange(told_, true)) seen_.set_value();
    });
  }
  ~ForcedAbort() { SetLogSink(nullptr); }
  void Wait() { seen_.get_future().wait(); }

 private:
  bool told_ = false;  // the sink runs under the log's mutex
  std::promise<void> seen_;
};

bool Within(int64_t timeout_ms, const std::function<bool()>& done) {
  const HostDeadline deadline = HostDeadline::After(timeout_ms);
  while (!done()) {
    if (deadline.expired()) return false;
    std::this_thread::yield();
  }
  return true;
}

void MakeLinks(Fabrics& fabrics) {
  for (auto& fabric : fabrics) {
    ASSERT_TRUE(fabric->MakeGroup("g", {1, 0}).has_value());
    ASSERT_TRUE(fabric->MakeChannel("c", 0, 1, 2, 8).has_value());
  }
}

TEST(NcclEnd, CloseLeavesNothingInTheDevicesAndIsDoneOnce) {
  for (const bool aborts : {false, true}) {
    NcclHouse house(Ranks(2));
    const auto before = Alive(house);
    Fabrics fabrics = house.MakeFabrics();
    MakeLinks(fabrics);
    ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
    EXPECT_NE(Alive(house), before);
    OnEach(2, [&](int i) {
      if (aborts) fabrics[i]->Abort(Cancelled("enough"));
      fabrics[i]->Close();
      return OkStatus();
    });
    EXPECT_EQ(house.network().alive(), 0);
    EXPECT_EQ(Alive(house), before);
    const size_t calls = house.library(0).calls().size();
    fabrics[0]->Close();
    fabrics[0]->Abort(Cancelled("later"));
    EXPECT_EQ(fabrics[0]->Poll(), Cancelled(aborts ? "enough" : "later"));
    fabrics.clear();
    EXPECT_EQ(house.library(0).calls().size(), calls);
    EXPECT_THAT(house.network().misuse(), IsEmpty());
  }
}

TEST(NcclEnd, UpTo226AThreadHasOneCallInProgress) {
  NcclHouse house({.process_of_rank = {0, 0, 1}});
  for (int i = 0; i < 2; ++i) house.library(i).set_version(22605);
  Fabrics fabrics = house.MakeFabrics();
  ASSERT_TRUE(fabrics[0]->MakeGroup("g", {1, 0}).has_value());
  for (auto& fabric : fabrics) {
    ASSERT_TRUE(fabric->MakeGroup("h", {2, 1}).has_value());
    ASSERT_TRUE(fabric->MakeChannel("c", 1, 2, 2, 8).has_value());
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  CloseAll(fabrics);
  EXPECT_EQ(house.library(0).count("CommAbort"), 0);
  EXPECT_EQ(house.network().alive(), 0);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

TEST(NcclEnd, ThreadsOfAnEndUseTheDeviceOfTheirCommunicator) {
  for (const bool aborts : {false, true}) {
    NcclHouse house({.process_of_rank = {0, 0}});
    Fabrics fabrics = house.MakeFabrics();
    MakeLinks(fabrics);
    ASSERT_TRUE(fabrics[0]->Connect().ok());
    if (aborts) fabrics[0]->Abort(Cancelled("enough"));
    fabrics[0]->Close();
    EXPECT_EQ(house.library(0).count(aborts ? "CommAbort" : "CommDestroy"), 8);
    EXPECT_EQ(house.network().alive(), 0);
    EXPECT_THAT(house.network().misuse(), IsEmpty());
  }
}

TEST(NcclEnd, MemoryOfAFailedExchangeIsFreedAfterTheAbort) {
  NcclHouse house(Ranks(2));
  const auto before = Alive(house);
  Fabrics fabrics = house.MakeFabrics();
  MakeLinks(fabrics);
  house.library(1).Fail("AllGather", Code::kSystemError);
  const auto results = OnEach(2, [&](int i) {
    const Status status = fabrics[i]->Connect();
    if (i == 0) return status;
    while (house.library(0).count("AllGather") == 0) std::this_thread::yield();
    fabrics[0]->Abort(status);  // as the control plane does
    return status;
  });
  for (const Status& status : results) {
    EXPECT_THAT(status.message(), HasSubstr("emulated failure of AllGather"));
  }
  // Words and what was gathered, of both.
  auto now = Alive(house);
  EXPECT_EQ(now["allocation"], before.at("allocation") + 4);
  EXPECT_EQ(now["host"], before.at("host") + 4);
  for (auto& fabric : fabrics) fabric->Close();
  EXPECT_EQ(Alive(house), before);
}

// Two ranks whose end is not waited for long: what does not end is left behind.
class NcclEndLeavesBehind : public testing::Test {
 protected:
  NcclEndLeavesBehind() : house_(Options()) {}
  void SetUp() override {
#if defined(MW_ADDRESS_SANITIZER)
    GTEST_SKIP() << "leaves memory behind";
#endif
  }

  NcclHouse house_;

 private:
  static HouseOptions Options() {
    HouseOptions options = Ranks(2);
    options.timing.end_ms = 2'000;
    return options;
  }
};

// The promise of Close() when NCCL waits for another process for ever.
TEST_F(NcclEndLeavesBehind, ADestructionThatDoesNotEnd) {
  Fabrics fabrics = house_.MakeFabrics();
  MakeLinks(fabrics);
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  std::promise<void> end;
  std::promise<void> ended;
  house_.library(0).After("CommDestroy", [&] {
    end.get_future().wait();
    ended.set_value();
  });
  const int made = house_.network().alive();
  CloseAll(fabrics);  // comes back
  EXPECT_EQ(house_.library(1).count("CommDestroy"), made / 2);
  EXPECT_EQ(house_.library(0).count("CommDestroy"), 1);
  end.set_value();
  ASSERT_EQ(ended.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THAT(house_.network().misuse(), IsEmpty());
}

TEST_F(NcclEndLeavesBehind, MemoryOfAChannelThatIsStillAtWork) {
  Fabrics fabrics = house_.MakeFabrics();
  Channel* const sender = fabrics[0]->MakeChannel("c", 0, 1, 2, 8).value().sender;
  ASSERT_TRUE(fabrics[1]->MakeChannel("c", 0, 1, 2, 8).has_value());
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  const auto memory = house_.device(0).Allocate({ir::MemoryKind::kOther, 64}).value();
  const auto before = Alive(house_);
  house_.driver().Hang(0, true);
  ASSERT_EQ(sender->Send(memory->data(), 8), OkStatus());
  for (auto& fabric : fabrics) fabric->Abort(Cancelled("enough"));
  CloseAll(fabrics);
  EXPECT_EQ(house_.network().alive(), 0);
  // All but the word of rank 1, whose device is idle.
  EXPECT_EQ(Alive(house_)["allocation"], before.at("allocation") - 1);
  EXPECT_EQ(Alive(house_)["host"], before.at("host") - 1);
  EXPECT_THAT(house_.driver().misuse(), IsEmpty());
  house_.driver().Hang(0, false);
}

TEST(NcclEnd, WhatIsMadeWhileAnAbortGoesOnIsAbortedToo) {
  HouseOptions options;
  options.process_of_rank = {0, 0};
  options.timing.gate_ms = 50;
  NcclHouse house(options);
  Fabrics fabrics = house.MakeFabrics();
  ForcedAbort forced;
  house.library(0).After("GroupStart", [&] {
    fabrics[0]->Abort(Cancelled("enough"));
    forced.Wait();
    // Time for the rounds that find nothing yet.
    (void)Within(100, [] { return false; });
  });
  EXPECT_EQ(fabrics[0]->Connect(), Cancelled("enough"));
  EXPECT_EQ(house.library(0).count("CommInitRankConfig"), 2);
  EXPECT_TRUE(Within(5'000, [&] { return house.network().alive() == 0; }));
  EXPECT_EQ(house.library(0).count("CommAbort"), 2);
  fabrics.clear();
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

TEST(NcclEnd, ACommunicatorThatIsAbortedWhileItGetsReadyIsNotReady) {
  HouseOptions options;
  options.process_of_rank = {0, 0};
  options.timing.gate_ms = 50;
  NcclHouse house(options);
  house.library(0).set_polls(0, 0);
  Fabrics fabrics = house.MakeFabrics();
  house.library(0).After("CommGetAsyncError", [&] {  // says that it is ready
    fabrics[0]->Abort(Cancelled("enough"));
    EXPECT_TRUE(Within(5'000, [&] { return house.network().alive() == 0; }));
  });
  EXPECT_EQ(fabrics[0]->Connect(), Cancelled("enough"));
}

// To give the core away is not counted.
int64_t SleepsOfThread() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

// All but those that lose the core for long when they begin.
TEST(NcclEnd, WaitsGiveTheCoreAwayBeforeTheySleep) {
  emulated::EmulatedNetwork network;
  EmulatedNccl library(network);
  const auto context = std::make_shared<nccl::Context>(library, FabricOptions(), nccl::Timing());
  bool slept = true;
  for (int i = 0; i < 100 && slept; ++i) {
    nccl::HostWait wait(*context, context->After(10'000));
    const int64_t before = SleepsOfThread();
    ASSERT_TRUE(wait.Pause([] { return std::string(); }).ok());
    slept = SleepsOfThread() > before;
  }
  EXPECT_FALSE(slept);
}

TEST(NcclEnd, AWaitSleepsWhenItLasts) {
  emulated::EmulatedNetwork network;
  EmulatedNccl library(network);
  const auto context = std::make_shared<nccl::Context>(library, FabricOptions(), nccl::Timing());
  nccl::HostWait wait(*context, context->After(10'000));
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(300)) {
    ASSERT_TRUE(wait.Pause([] { return std::string(); }).ok());
  }
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait.Pause([] { return std::string(); }).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(50));
}

}  // namespace
}  // namespace meshwright::collective
