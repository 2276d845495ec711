// Death, deadlines and aborts in the middle of every kind of operation.
//
// On NCCL's fabrics only what it can promise: it has no deadline in a device's queue, tells peers
// neither of an abort nor of a death by name, and does not compare calls. There the control plane
// aborts all processes with one cause. Killed processes need real ones: the emulation has threads.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/conformance/collective/cluster.h"

namespace meshwright::collective {
namespace {

using Clock = std::chrono::steady_clock;

int64_t MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

// Runs operations of one kind until one fails; returns that failure.
Status LoopOf(Kind kind, RankSite& site, const Fabric::Ends& left, const Fabric::Ends& right) {
  const int64_t count = 200'000;
  const auto full = static_cast<size_t>(count * site.size);
  std::vector<float> input(full, 1.0f);
  std::vector<float> output(full);
  for (int i = 0;; ++i) {
    if (i == 3) {
      site.report_ready();
    }
    Status status;
    switch (kind) {
      case Kind::kAllReduce:
        status = site.world->AllReduce(input.data(), count, ir::DType::kF32, Reduction::kMax);
        break;
      case Kind::kAllGather:
        status = site.world->AllGather(input.data(), output.data(), count, ir::DType::kF32);
        break;
      case Kind::kReduceScatter:
        status = site.world->ReduceScatter(input.data(), output.data(), count, ir::DType::kF32,
                                           Reduction::kMax);
        break;
      case Kind::kAllToAll:
        status = site.world->AllToAll(input.data(), output.data(), count, ir::DType::kF32);
        break;
      case Kind::kRingShift:
        status = site.world->RingShift(input.data(), output.data(), count, ir::DType::kF32, 1);
        break;
      case Kind::kBroadcast:
        status = site.world->Broadcast(input.data(), count, ir::DType::kF32, i % site.size);
        break;
      case Kind::kSendRecv:
        status = right.sender->Send(input.data(), 400'000);
        if (status.ok()) {
          status = left.receiver->Receive(output.data(), 400'000);
        }
        break;
    }
    if (!status.ok()) {
      return status;
    }
  }
}

using DeathParam = std::tuple<Kind, Transport>;
class DeathDuring : public testing::TestWithParam<DeathParam> {};

TEST_P(DeathDuring, EverySurvivorNamesTheKilledRankWithinTwoSeconds) {
  const auto [kind, transport] = GetParam();
  constexpr int kSize = 3;
  constexpr int kVictim = 1;
  const ClusterSpec spec = EvenCluster(kSize, 1, transport);
  ForkedCluster cluster(spec, [&, kind = kind](Site& site) -> std::string {
    std::vector<Fabric::Ends> ring;  // ring[i]: i -> i + 1
    for (int i = 0; i < kSize; ++i) {
      const int next = (i + 1) % kSize;
      const bool here = site.process == i || site.process == next;
      ring.push_back(
          here ? site.fabric->MakeChannel(fmt::format("r{}", i), i, next, 2, 400'000).value()
               : Fabric::Ends());
    }
    return OnWorld(spec, [&](RankSite& rank_site) {
      const auto right = static_cast<size_t>(rank_site.rank);
      const size_t left = (right + kSize - 1) % kSize;
      return LoopOf(kind, rank_site, ring[left], ring[right]).ToString();
    })(site);
  });
  for (int process = 0; process < kSize; ++process) {
    cluster.AwaitReady(process);
  }
  const auto start = Clock::now();
  cluster.Kill(kVictim);
  const std::string first = cluster.Result(0, 5'000);
  const std::string last = cluster.Result(2, 5'000);
  EXPECT_LT(MillisecondsSince(start), 2'000);
  EXPECT_NE(first.find("unavailable: "), std::string::npos) << first;
  EXPECT_NE(first.find("rank 1 (worker-1)"), std::string::npos) << first;
  EXPECT_EQ(first, last) << "all survivors report the same first cause";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeathDuring,
    testing::Combine(testing::Values(Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter,
                                     Kind::kAllToAll, Kind::kRingShift, Kind::kBroadcast,
                                     Kind::kSendRecv),
                     testing::Values(Transport::kSharedMemory, Transport::kTcp)),
    [](const testing::TestParamInfo<DeathParam>& death) {
      return fmt::format("{}_{}", KindName(std::get<0>(death.param)),
                         std::get<1>(death.param) == Transport::kTcp ? "tcp" : "shared_memory");
    });

class FailureOn : public testing::TestWithParam<Transport> {};

TEST_P(FailureOn, DeathOfAnIdleRankWakesThoseWhoWaitForIt) {
  const ClusterSpec spec = EvenCluster(3, 1, GetParam());
  ForkedCluster cluster(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        site.report_ready();
        if (site.rank == 2) {
          for (;;) {
            pause();
          }
        }
        float value = 0;
        return site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum).ToString();
      }));
  for (int process = 0; process < 3; ++process) {
    cluster.AwaitReady(process);
  }
  const auto start = Clock::now();
  cluster.Kill(2);
  EXPECT_NE(cluster.Result(0, 5'000).find("rank 2 (worker-2)"), std::string::npos);
  EXPECT_NE(cluster.Result(1, 5'000).find("rank 2 (worker-2)"), std::string::npos);
  EXPECT_LT(MillisecondsSince(start), 2'000);
}

TEST_P(FailureOn, ThreeRanksOfOneDeadProcessAreAllNamed) {
  const ClusterSpec spec = EvenCluster(4, 3, GetParam());  // ranks 0,1,2 | 3
  ForkedCluster cluster(spec, OnWorld(spec, [](RankSite& site) -> std::string {
                          std::vector<double> data(100'000, 1.0);
                          for (int i = 0;; ++i) {
                            if (i == 2) {
                              site.report_ready();
                            }
                            const Status status = site.world->AllReduce(
                                data.data(), 100'000, ir::DType::kF64, Reduction::kMax);
                            if (!status.ok()) {
                              return status.ToString();
                            }
                          }
                        }));
  cluster.AwaitReady(0);
  cluster.AwaitReady(1);
  cluster.Kill(0);
  EXPECT_NE(cluster.Result(1, 5'000).find("ranks 0,1,2 (worker-0)"), std::string::npos);
}

TEST_P(FailureOn, StoppedPeerIsADeadlineThatNamesIt) {
  ClusterSpec spec = EvenCluster(2, 1, GetParam());
  spec.operation_timeout_ms = 1'000;
  ForkedCluster cluster(spec, OnWorld(spec, [](RankSite& site) -> std::string {
                          site.report_ready();
                          std::vector<float> data(1'000'000);
                          for (;;) {
                            const Status status = site.world->AllReduce(
                                data.data(), 1'000'000, ir::DType::kF32, Reduction::kMax);
                            if (!status.ok()) {
                              return status.ToString();
                            }
                          }
                        }));
  cluster.AwaitReady(0);
  cluster.AwaitReady(1);
  const auto start = Clock::now();
  cluster.Stop(1);
  const std::string result = cluster.Result(0, 10'000);
  EXPECT_LT(MillisecondsSince(start), 5'000);
  EXPECT_NE(result.find("deadline exceeded"), std::string::npos) << result;
  EXPECT_NE(result.find("rank 1 (worker-1)"), std::string::npos) << result;
}

TEST_P(FailureOn, AbortFromAnotherThreadReachesEveryProcessWithItsCause) {
  const ClusterSpec spec = EvenCluster(3, 1, GetParam());
  const auto results = RunAsThreads(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        float value = 0;
        // One round first: every process has left Connect() before the abort.
        Status status = site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        std::thread aborter;
        if (site.rank == 1) {
          aborter = std::thread([&] {
            site.fabric->Abort(
                Aborted("step 12 was cancelled by the controller").WithBlame(Blame::kUser));
          });
        }
        // Rank 1 never joins, so that the others are blocked when the abort comes.
        while (status.ok() && site.rank != 1) {
          status = site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        }
        if (aborter.joinable()) {
          aborter.join();
          status = site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        }
        return fmt::format("{} blame {}; fabric {}", status.ToString(),
                           static_cast<int>(status.blame()), site.fabric->status().ToString());
      }));
  const std::string expected =
      "aborted: step 12 was cancelled by the controller blame 1; fabric aborted: step 12 was "
      "cancelled by the controller";
  EXPECT_EQ(results, std::vector<std::string>(3, expected));
}

TEST_P(FailureOn, MembersInDifferentCallsAreToldBoth) {
  const ClusterSpec spec = EvenCluster(2, 1, GetParam());
  const auto results = RunAsThreads(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        float data[8] = {};
        const Status status =
            site.rank == 0 ? site.world->AllGather(data, data + 4, 2, ir::DType::kF32)
                           : site.world->AllReduce(data, 4, ir::DType::kF32, Reduction::kSum);
        return status.ToString();
      }));
  for (const std::string& result : results) {
    EXPECT_NE(result.find("internal: "), std::string::npos) << result;
    EXPECT_NE(result.find("all_gather #1"), std::string::npos) << result;
    EXPECT_NE(result.find("all_reduce #1"), std::string::npos) << result;
  }
}

class FailureOnNccl : public testing::TestWithParam<int> {};  // ranks per process

TEST_P(FailureOnNccl, AnAbortOfAllProcessesEndsBlockedCallsWithItsCause) {
  const ClusterSpec spec = NcclCluster(4, GetParam());
  const auto results = RunAsThreads(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        float value = 0;
        const auto sum = [&] {
          return site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        };
        Status status = sum();
        std::thread control_plane([&] {
          site.fabric->Abort(
              Aborted("step 12 was cancelled by the controller").WithBlame(Blame::kUser));
        });
        // Whoever is aborted first leaves the others blocked.
        while (status.ok()) status = sum();
        control_plane.join();
        site.fabric->Abort(Unavailable("a later cause"));
        return fmt::format("{} blame {}; fabric {}; again {}", status.ToString(),
                           static_cast<int>(status.blame()), site.fabric->status().ToString(),
                           sum().ToString());
      }));
  if (IsSkipped()) return;
  const std::string cause = "aborted: step 12 was cancelled by the controller";
  const std::string of_rank = fmt::format("{} blame 1; fabric {}; again {}", cause, cause, cause);
  for (const std::string& result : results) {
    std::string expected;
    for (int rank = 0; rank < GetParam(); ++rank) expected += of_rank;
    EXPECT_EQ(result, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(RanksPerProcess, FailureOnNccl, testing::Values(1, 2, 4));

INSTANTIATE_TEST_SUITE_P(Transports, FailureOn,
                         testing::Values(Transport::kSharedMemory, Transport::kTcp),
                         [](const testing::TestParamInfo<Transport>& transport) {
                           return std::string(transport.param == Transport::kTcp ? "Tcp"
                                                                                 : "SharedMemory");
                         });

}  // namespace
}  // namespace meshwright::collective
