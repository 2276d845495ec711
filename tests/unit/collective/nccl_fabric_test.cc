// The NCCL fabric on emulated GPUs: how it starts, what it survives, how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "tests/fake_clock.h"
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
using ::testing::Not;

std::vector<std::string> NamesOf(EmulatedNccl& library) {
  std::vector<std::string> names;
  for (const EmulatedNccl::Call& call : library.calls()) names.push_back(call.name);
  return names;
}

TEST(NcclFabric, CallsInProgressAreWaitedFor) {
  NcclHouse house(Ranks(2));
  for (int i = 0; i < 2; ++i) house.library(i).set_polls(7, 5);
  Fabrics fabrics = house.MakeFabrics();
  std::vector<Group*> groups;
  for (int i = 0; i < 2; ++i) groups.push_back(fabrics[i]->MakeGroup("g", {1, 0}).value().at(i));
  EXPECT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  EXPECT_THAT(OnEach(2,
                     [&](int i) -> Status {
                       MW_ASSIGN_OR_RETURN(const float sum,
                                           SumOnce(house, *fabrics[i], *groups[i], i));
                       return sum == 3.0f ? OkStatus() : Internal("wrong sum");
                     }),
              Each(OkStatus()));
  CloseAll(fabrics);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
  EXPECT_EQ(house.network().alive(), 0);
  EXPECT_EQ(house.library(0).count("CommAbort"), 0);
  EXPECT_EQ(house.library(0).count("CommDestroy"), 2);
}

TEST(NcclFabric, ConnectGivesUpAtItsDeadlineWhenAPeerDoesNotCome) {
  FakeClock clock;
  HouseOptions options = Ranks(2);
  options.timing = {&clock, [&] { clock.AdvanceMs(100); }};
  for (const int64_t timeout_ms : {int64_t{1'000'000}, int64_t{2'000}}) {
    NcclHouse house(options);
    FabricOptions fabric_options = house.FabricOptionsOf(0);
    fabric_options.connect_timeout_ms = timeout_ms;
    auto fabric = house.MakeFabric(0, fabric_options).value();
    const auto peer = house.MakeFabric(1, house.FabricOptionsOf(1)).value();
    ASSERT_TRUE(emulated::Introduce({fabric.get(), peer.get()}).ok());
    const int64_t start_ms = clock.NowMs();
    const Status status = fabric->Connect();
    const int64_t waited_ms = clock.NowMs() - start_ms;
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 (worker-0): communicator world"));
    EXPECT_EQ(waited_ms, std::min<int64_t>(timeout_ms, 300'000));  // the first Connect()'s
    EXPECT_EQ(fabric->status(), status);
    fabric.reset();
    EXPECT_EQ(house.network().alive(), 0);
    EXPECT_THAT(house.network().misuse(), IsEmpty());
  }
}

TEST(NcclFabric, AbortEndsAWaitForAPeer) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  const auto results = OnEach(2, [&](int i) {
    if (i == 0) return fabrics[0]->Connect();
    while (house.library(0).count("CommGetAsyncError") < 3) std::this_thread::yield();
    fabrics[0]->Abort(Unavailable("worker-1 is lost"));
    fabrics[0]->Abort(Unavailable("a later cause"));
    return OkStatus();
  });
  EXPECT_EQ(results[0], Unavailable("worker-1 is lost"));
  EXPECT_EQ(fabrics[0]->status(), Unavailable("worker-1 is lost"));
  fabrics.clear();
  EXPECT_EQ(house.network().alive(), 0);
}

TEST(NcclFabric, VersionsAreComparedBeforeAnythingStarts) {
  NcclHouse house(Ranks(2));
  house.library(1).set_version(22703);
  const auto first = house.MakeFabric(0, house.FabricOptionsOf(0)).value();
  const auto second = house.MakeFabric(1, house.FabricOptionsOf(1)).value();
  const Status status = emulated::Introduce({first.get(), second.get()});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("worker-0 has NCCL 2.28.9, worker-1 has 2.27.3"));
  const Status unasked = first->Connect();
  EXPECT_EQ(unasked.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(house.library(0).count("CommInitRankConfig"), 0);
}

TEST(NcclFabric, ProcessesThatMadeDifferentGroupsAreToldApart) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  ASSERT_TRUE(fabrics[0]->MakeGroup("g", {0, 1}).has_value());
  ASSERT_TRUE(fabrics[1]->MakeGroup("h", {0, 1}).has_value());
  for (const Status& status : ConnectAll(fabrics)) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("(worker-0)"), HasSubstr("(worker-1)")));
  }
}

TEST(NcclFabric, AnAsynchronousErrorAbortsAndNamesItsPlace) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  Group* group = fabrics[0]->MakeGroup("g", {0, 1}).value().at(0);
  ASSERT_TRUE(fabrics[1]->MakeGroup("g", {0, 1}).has_value());
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  EXPECT_TRUE(fabrics[0]->Poll().ok());
  house.library(0).FailAsync(Code::kRemoteError);
  // Rank 1 never comes: only looking at the communicators can end the wait.
  const auto sum = SumOnce(house, *fabrics[0], *group, 0);
  ASSERT_FALSE(sum.has_value());
  EXPECT_EQ(sum.error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sum.error().blame(), Blame::kPeerVictim);
  EXPECT_THAT(sum.error().message(),
              AllOf(HasSubstr("rank 0 (worker-0)"), HasSubstr("ncclRemoteError"),
                    HasSubstr("emulated asynchronous failure")));
  std::byte unused{};
  EXPECT_EQ(group->AllReduce(&unused, 1, ir::DType::kF32, Reduction::kSum), sum.error());
  EXPECT_EQ(fabrics[0]->Connect(), sum.error());
  fabrics[1]->Abort(sum.error());
  fabrics.clear();
  EXPECT_EQ(house.network().alive(), 0);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

TEST(NcclFabric, AFailedCallSaysWhichAndEndsTheFabric) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  Group* group = fabrics[0]->MakeGroup("tensor", {0, 1}).value().at(0);
  ASSERT_TRUE(fabrics[1]->MakeGroup("tensor", {0, 1}).has_value());
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  house.library(0).Fail("AllReduce", Code::kSystemError);
  const auto sum = SumOnce(house, *fabrics[0], *group, 0);
  ASSERT_FALSE(sum.has_value());
  EXPECT_THAT(sum.error().message(),
              AllOf(HasSubstr("all_reduce #1 on group tensor"), HasSubstr("ncclSystemError"),
                    HasSubstr("emulated failure of AllReduce")));
  EXPECT_EQ(fabrics[0]->status(), sum.error());
  fabrics[1]->Abort(sum.error());
}

TEST(NcclFabric, AWaitForADeadPeerEndsWithTheCauseAndFreesTheQueue) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  Group* group = fabrics[0]->MakeGroup("g", {0, 1}).value().at(0);
  ASSERT_TRUE(fabrics[1]->MakeGroup("g", {0, 1}).has_value());
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  const Status cause = Unavailable("rank 1 (worker-1) is lost");
  const auto made = house.library(0).count("AllReduce");  // by Connect()
  const auto results = OnEach(2, [&](int i) -> Status {
    if (i == 0) return internal::ToStatus(SumOnce(house, *fabrics[0], *group, 0));
    while (house.library(0).count("AllReduce") == made) std::this_thread::yield();
    fabrics[0]->Abort(cause);
    return OkStatus();
  });
  EXPECT_EQ(results[0], cause);
  fabrics[1]->Abort(cause);
  fabrics.clear();
  EXPECT_TRUE(house.collectives(0).Finish(HostDeadline::After(5'000)).ok());
}

TEST(NcclFabric, AllCommunicatorsAreAbortedAtOnceAndNeverCalledAgain) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(fabrics[i]->MakeGroup("g", {1, 0}).has_value());
    ASSERT_TRUE(fabrics[i]->MakeChannel("a", 0, 1, 2, 64).has_value());
    ASSERT_TRUE(fabrics[i]->MakeChannel("b", 1, 0, 2, 64).has_value());
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  constexpr int kComms = 5;  // world, g, wires, a, b
  house.library(0).set_aborts_together(kComms);
  fabrics[0]->Abort(Cancelled("enough"));
  fabrics[0].reset();
  const std::vector<EmulatedNccl::Call> calls = house.library(0).calls();
  std::set<std::thread::id> threads;
  std::set<const void*> comms;
  for (const EmulatedNccl::Call& call : calls) {
    if (call.name != "CommAbort") {
      EXPECT_TRUE(comms.empty()) << call.name << " after an abort";
      continue;
    }
    threads.insert(call.thread);
    comms.insert(call.comm);
  }
  EXPECT_EQ(threads.size(), static_cast<size_t>(kComms));
  EXPECT_EQ(comms.size(), static_cast<size_t>(kComms));
  EXPECT_THAT(house.network().misuse(), IsEmpty());
  fabrics[1]->Abort(Cancelled("enough"));
}

TEST(NcclFabric, DisjointGroupsAreSplitTogetherAndTheWorldIsNotSplit) {
  NcclHouse house(Ranks(4));
  Fabrics fabrics = house.MakeFabrics();
  const std::vector<std::vector<int>> lists = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {0, 1, 2, 3}};
  std::vector<std::vector<Group*>> groups(4);
  for (int i = 0; i < 4; ++i) {
    for (const std::vector<int>& ranks : lists) {
      if (std::find(ranks.begin(), ranks.end(), i) == ranks.end()) continue;
      const std::string name = "g" + std::to_string(ranks[0]) + std::to_string(ranks.back()) +
                               std::to_string(ranks.size());
      groups[i].push_back(fabrics[i]->MakeGroup(name, ranks).value().at(i));
    }
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  EXPECT_EQ(house.library(0).count("CommSplit"), 2);
  const float expected[4][3] = {{3, 4, 10}, {3, 6, 10}, {7, 4, 10}, {7, 6, 10}};
  EXPECT_THAT(OnEach(4,
                     [&](int i) -> Status {
                       for (int g = 0; g < 3; ++g) {
                         MW_ASSIGN_OR_RETURN(const float sum,
                                             SumOnce(house, *fabrics[i], *groups[i][g], i));
                         if (sum != expected[i][g]) return Internal("wrong sum");
                       }
                       return OkStatus();
                     }),
              Each(OkStatus()));
  CloseAll(fabrics);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

TEST(NcclFabric, ConnectMayBeCalledAgainForMore) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  std::vector<Group*> groups;
  for (int i = 0; i < 2; ++i) {
    groups.push_back(fabrics[i]->MakeGroup("late", {1, 0}).value().at(i));
    ASSERT_TRUE(fabrics[i]->MakeChannel("c", 0, 1, 1, 8).has_value());
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(fabrics[i]->MakeChannel("d", 1, 0, 1, 8).has_value());
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  EXPECT_EQ(house.library(0).count("CommInitRankConfig"), 1);
  EXPECT_EQ(house.library(0).count("CommSplit"), 4);  // late, wires, c, d
  EXPECT_THAT(
      OnEach(2,
             [&](int i) { return internal::ToStatus(SumOnce(house, *fabrics[i], *groups[i], i)); }),
      Each(OkStatus()));
  CloseAll(fabrics);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

TEST(NcclFabric, LocalRanksStartInOneGroupOfCalls) {
  NcclHouse house({.process_of_rank = {0, 0}});
  Fabrics fabrics = house.MakeFabrics();
  ASSERT_TRUE(fabrics[0]->Connect().ok());
  const std::vector<std::string> names = NamesOf(house.library(0));
  const std::vector<std::string> expected = {"GroupStart", "CommInitRankConfig",
                                             "CommInitRankConfig", "GroupEnd"};
  EXPECT_NE(std::search(names.begin(), names.end(), expected.begin(), expected.end()), names.end());
}

TEST(NcclFabric, LargeMeshesStartWithSeveralIds) {
  HouseOptions options;
  options.process_of_rank.resize(130, 0);
  options.memory_bytes = 1 << 16;
  NcclHouse house(options);
  Fabrics fabrics = house.MakeFabrics();
  EXPECT_EQ(fabrics[0]->Connect(), OkStatus());
  EXPECT_EQ(house.library(0).count("GetUniqueId"), 3);
  EXPECT_EQ(house.library(0).count("CommInitRankScalable"), 130);
  EXPECT_EQ(house.library(0).count("CommInitRankConfig"), 0);
}

TEST(NcclFabric, AnOrderlyCloseDeliversWhatWasSent) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  Channel* sender = fabrics[0]->MakeChannel("c", 0, 1, 2, 8)->sender;
  Channel* receiver = fabrics[1]->MakeChannel("c", 0, 1, 2, 8)->receiver;
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  const auto results = OnEach(2, [&](int i) -> Status {
    device::Queue& queue = house.device(i).queue();
    MW_ASSIGN_OR_RETURN(const auto memory, house.device(i).Allocate({ir::MemoryKind::kOther, 64}));
    int64_t value = 0;
    for (int64_t n = 0; n < 2; ++n) {
      if (i == 0) {
        const int64_t sent = 40 + n;
        MW_TRY(queue.CopyIn(memory->data(), &sent, 8));
        MW_TRY(sender->Send(memory->data(), 8));
        continue;
      }
      // By now the sender waits in its destructor.
      MW_TRY(receiver->Receive(memory->data(), 8));
      MW_TRY(queue.CopyOut(&value, memory->data(), 8));
      if (value != 40 + n) return Internal("wrong message");
    }
    fabrics[i].reset();
    return OkStatus();
  });
  EXPECT_THAT(results, Each(OkStatus()));
  EXPECT_EQ(house.library(0).count("CommAbort"), 0);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

// Blocks the computing queue until it is opened.
class Barrier {
 public:
  explicit Barrier(device::Queue& queue) {
    static_cast<emulated::Stream*>(queue.native())->Push([this] { return open_.load(); });
  }
  ~Barrier() { Open(); }
  void Open() { open_.store(true); }

 private:
  std::atomic<bool> open_{false};
};

TEST(NcclFabric, AReceiveStartsWhenTheWorkBeforeItIsDone) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  Channel* sender = fabrics[0]->MakeChannel("c", 0, 1, 1, 8)->sender;
  Channel* receiver = fabrics[1]->MakeChannel("c", 0, 1, 1, 8)->receiver;
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  Number out(house, 0, 5);
  Number in(house, 1, 0);
  device::Queue& sending = house.device(0).queue();
  device::Queue& receiving = house.device(1).queue();
  ASSERT_TRUE(house.collectives(0).Finish(HostDeadline::After(5'000)).ok());
  {
    Barrier barrier(receiving);
    ASSERT_THAT(
        OnEach(2,
               [&](int i) -> Status {
                 for (int n = 0; n < 2; ++n) {
                   MW_TRY(i == 0 ? sender->Send(out.data(), 4) : receiver->Receive(in.data(), 4));
                 }
                 return OkStatus();
               }),
        Each(OkStatus()));
    // The second message waits for the slot of the first, which nobody takes yet.
    EXPECT_EQ(sending.Finish(HostDeadline::After(100)).code(), StatusCode::kDeadlineExceeded);
    barrier.Open();
    EXPECT_EQ(sending.Finish(HostDeadline::After(20'000)), OkStatus());
    EXPECT_EQ(receiving.Finish(HostDeadline::After(20'000)), OkStatus());
  }
  EXPECT_EQ(in.Read(*fabrics[1]).value(), 5);
  CloseAll(fabrics);
  EXPECT_THAT(house.network().misuse(), IsEmpty());
}

// One forward, one backward: each rank puts its whole list in without waiting for anything.
Status RunPipeline(Fabric& fabric, device::Device& device, int stage, int stages) {
  constexpr int kMicrobatches = 8;
  constexpr int kBytes = 64;
  const auto end = [&](int from, int to) -> Result<Channel*> {
    if (from < 0 || to < 0 || from == stages || to == stages) return nullptr;
    const std::string name = std::to_string(from) + "-" + std::to_string(to);
    MW_ASSIGN_OR_RETURN(const Fabric::Ends ends, fabric.MakeChannel(name, from, to, 2, kBytes));
    return from == stage ? ends.sender : ends.receiver;
  };
  MW_ASSIGN_OR_RETURN(Channel* const input, end(stage - 1, stage));
  MW_ASSIGN_OR_RETURN(Channel* const output, end(stage, stage + 1));
  MW_ASSIGN_OR_RETURN(Channel* const gradient, end(stage + 1, stage));
  MW_ASSIGN_OR_RETURN(Channel* const input_gradient, end(stage, stage - 1));
  MW_TRY(fabric.Connect());
  MW_ASSIGN_OR_RETURN(const auto data, device.Allocate({ir::MemoryKind::kOther, kBytes}));
  const auto pass = [&](Channel* from, Channel* to) -> Status {
    if (from != nullptr) MW_TRY(from->Receive(data->data(), kBytes));
    return to == nullptr ? OkStatus() : to->Send(data->data(), kBytes);
  };
  const int ahead = stages - 1 - stage;
  for (int i = 0; i < kMicrobatches + ahead; ++i) {
    if (i < kMicrobatches) MW_TRY(pass(input, output));
    if (i >= ahead) MW_TRY(pass(gradient, input_gradient));
  }
  return device.queue().Finish(HostDeadline::After(20'000), [&] { return fabric.Poll(); });
}

TEST(NcclFabric, APipelineEndsThoughReceivesWaitForTheirTurn) {
  constexpr int kStages = 4;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    HouseOptions options = Ranks(kStages);
    options.seed = seed;
    NcclHouse house(options);
    Fabrics fabrics = house.MakeFabrics();
    EXPECT_THAT(
        OnEach(kStages,
               [&](int i) { return RunPipeline(*fabrics[i], house.device(i), i, kStages); }),
        Each(OkStatus()));
    CloseAll(fabrics);
    EXPECT_THAT(house.network().misuse(), IsEmpty());
  }
}

TEST(NcclFabric, KernelsOfChannelsAreSmallOnBothEnds) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  for (auto& fabric : fabrics) {
    ASSERT_TRUE(fabric->MakeGroup("g", {1, 0}).has_value());
    ASSERT_TRUE(fabric->MakeChannel("c", 0, 1, 2, 8).has_value());
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  for (int i = 0; i < 2; ++i) {
    std::vector<std::pair<bool, int>> made;
    for (const EmulatedNccl::Call& call : house.library(i).calls()) {
      if (call.name != "CommInitRankConfig" && call.name != "CommSplit") continue;
      made.emplace_back(call.options.split_share, call.options.max_ctas);
    }
    // world, g; wires, c.
    EXPECT_THAT(made, testing::ElementsAre(std::pair(true, 0), std::pair(true, 0),
                                           std::pair(false, 4), std::pair(false, 4)));
  }
  CloseAll(fabrics);
}

TEST(NcclFabric, TheFirstCallOfAKindHasAsLongAsConnecting) {
  FakeClock clock;
  std::atomic<bool> runs{false};
  HouseOptions house_options = Ranks(2);
  house_options.timing = {.clock = &clock, .pause = [&] {
                            if (runs.load()) clock.AdvanceMs(100);
                            std::this_thread::yield();
                          }};
  NcclHouse house(house_options);
  Fabrics fabrics;
  std::vector<Group*> groups;
  for (int i = 0; i < 2; ++i) {
    FabricOptions options = house.FabricOptionsOf(i);
    options.connect_timeout_ms = 200'000;
    options.operation_timeout_ms = 60'000;
    fabrics.push_back(house.MakeFabric(i, options).value());
    groups.push_back(fabrics[i]->MakeGroup("g", Upto(2)).value().at(i));
  }
  ASSERT_TRUE(emulated::Introduce({fabrics[0].get(), fabrics[1].get()}).ok());
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  const auto memory = house.device(0).Allocate({ir::MemoryKind::kOther, 64}).value();
  runs.store(true);
  const int64_t start_ms = clock.NowMs();
  // NCCL connects in this call, and the peer does not come.
  const Status status =
      groups[0]->AllToAll(memory->data(), memory->data() + 32, 1, ir::DType::kF32);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(clock.NowMs() - start_ms, 200'000);
  fabrics[1]->Abort(status);
  for (auto& fabric : fabrics) fabric->Close();
}

TEST(NcclFabric, LogSumExpTakesTheScratchThatItIsGiven) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  std::vector<Group*> groups;
  for (int i = 0; i < 2; ++i) {
    groups.push_back(fabrics[i]->MakeGroup("g", Upto(2)).value().at(i));
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  constexpr auto kF32 = ir::DType::kF32;
  EXPECT_EQ(groups[0]->ScratchBytes(Kind::kAllReduce, 6, kF32, Reduction::kLogSumExp), 2 * 6 * 4);
  EXPECT_EQ(groups[0]->ScratchBytes(Kind::kReduceScatter, 6, kF32, Reduction::kLogSumExp), 48);
  EXPECT_EQ(groups[0]->ScratchBytes(Kind::kAllReduce, 6, kF32, Reduction::kSum), 0);
  std::vector<std::unique_ptr<device::Memory>> scratch;
  std::vector<std::unique_ptr<Number>> numbers;
  for (int i = 0; i < 2; ++i) {
    scratch.push_back(house.device(i).Allocate({ir::MemoryKind::kWorkspace, 8}).value());
    numbers.push_back(std::make_unique<Number>(house, i, 1.0f));
    groups[i]->SetScratch(scratch[i]->data(), 8);
  }
  const int64_t before = house.driver().alive("allocation");
  const auto results = OnEach(2, [&](int i) -> Status {
    MW_TRY(groups[i]->AllReduce(numbers[i]->data(), 1, kF32, Reduction::kLogSumExp));
    MW_ASSIGN_OR_RETURN(const float value, numbers[i]->Read(*fabrics[i]));
    return std::abs(value - 1.693147f) < 1e-5f ? OkStatus() : Internal("wrong sum");
  });
  EXPECT_THAT(results, Each(OkStatus()));
  EXPECT_EQ(house.driver().alive("allocation"), before);
  CloseAll(fabrics);
}

TEST(NcclFabric, LogSumExpCountsTheBytesOfItsKind) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  std::vector<Group*> groups;
  for (int i = 0; i < 2; ++i) {
    groups.push_back(fabrics[i]->MakeGroup("g", Upto(2)).value().at(i));
  }
  ASSERT_THAT(ConnectAll(fabrics), Each(OkStatus()));
  EXPECT_THAT(
      OnEach(2,
             [&](int i) -> Status {
               Number data(house, i, 1.0f);
               MW_TRY(groups[i]->AllReduce(data.data(), 6, ir::DType::kF32, Reduction::kLogSumExp));
               return internal::ToStatus(data.Read(*fabrics[i]));
             }),
      Each(OkStatus()));
  EXPECT_EQ(
      groups[0]->counters(Kind::kAllReduce).bytes + groups[1]->counters(Kind::kAllReduce).bytes,
      2 * 6 * 4);
  EXPECT_EQ(groups[0]->counters(Kind::kAllGather).calls, 0);
  EXPECT_EQ(house.library(0).count("AllGather"), 2);  // one of them of Connect()
  CloseAll(fabrics);
}

TEST(NcclFabric, ArgumentsAreCheckedWithoutEndingTheFabric) {
  NcclHouse house(Ranks(2));
  Fabrics fabrics = house.MakeFabrics();
  Fabric& fabric = *fabrics[0];
  EXPECT_EQ(fabric.MakeChannel("self", 0, 0, 1, 8).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fabric.MakeGroup("g", {0, 2}).error().code(), StatusCode::kInvalidArgument);
  Group* group = fabric.MakeGroup("one", {0}).value().at(0);
  EXPECT_EQ(fabric.MakeGroup("one", {0}).error().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(group->AllReduce(nullptr, 1, ir::DType::kBool, Reduction::kSum).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(group->Broadcast(nullptr, 0, ir::DType::kF32, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(fabric.status().ok());
  FabricOptions options = house.FabricOptionsOf(0);
  options.local_ranks = {1};
  EXPECT_FALSE(house.MakeFabric(0, options).has_value());
}

}  // namespace
}  // namespace meshwright::collective
