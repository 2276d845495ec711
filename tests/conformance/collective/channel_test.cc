// Channels on every transport: order, exact capacity, sizes, closing in good order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/conformance/collective/cluster.h"

namespace meshwright::collective {
namespace {

// Rank 0 sends to rank 1. per_process 2: one process; 1: a fabric each.
struct Path {
  const char* name;
  int per_process;
  Transport transport;
  const char* expected_transport;
  bool nccl = false;
};

ClusterSpec SpecOf(const Path& path) {
  return path.nccl ? NcclCluster(2, path.per_process)
                   : EvenCluster(2, path.per_process, path.transport);
}

class ChannelOn : public testing::TestWithParam<Path> {
 protected:
  // Makes one channel and runs the ends in the threads of their ranks.
  void Exchange(int capacity, int64_t max_bytes, const std::function<std::string(Channel&)>& send,
                const std::function<std::string(Channel&)>& receive) {
    const ClusterSpec spec = SpecOf(GetParam());
    const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
      const auto ends = site.fabric->MakeChannel("c", 0, 1, capacity, max_bytes);
      if (!ends.has_value()) {
        return ends.error().ToString();
      }
      if (const Status status = site.fabric->Connect(); !status.ok()) {
        return status.ToString();
      }
      const int peer = site.process == 0 ? 1 : 0;
      if (std::string(site.fabric->transport(peer)) != GetParam().expected_transport) {
        return fmt::format("went by {}", site.fabric->transport(peer));
      }
      return OnEachRank(spec, site.process, [&](int rank) {
        return rank == 0 ? send(*ends->sender) : receive(*ends->receiver);
      });
    });
    for (const std::string& result : results) {
      EXPECT_EQ(result, "");
    }
  }
};

TEST_P(ChannelOn, MessagesArriveInOrderWithTheirBytes) {
  constexpr int kMessages = 500;
  const auto bytes_of = [](int i) { return static_cast<int64_t>(i * 37 % 5000); };
  Exchange(
      3, 5000,
      [&](Channel& channel) -> std::string {
        std::vector<uint8_t> data(5000);
        for (int i = 0; i < kMessages; ++i) {
          std::iota(data.begin(), data.end(), static_cast<uint8_t>(i));
          const Status status = channel.Send(data.data(), bytes_of(i));
          std::fill(data.begin(), data.end(), uint8_t{0});  // the message was copied
          if (!status.ok()) {
            return status.ToString();
          }
        }
        const int64_t sent = channel.counters().bytes;
        int64_t expected = 0;
        for (int i = 0; i < kMessages; ++i) {
          expected += bytes_of(i);
        }
        return sent == expected ? "" : fmt::format("counted {} bytes of {}", sent, expected);
      },
      [&](Channel& channel) -> std::string {
        std::vector<uint8_t> data(5000);
        std::vector<uint8_t> expected(5000);
        for (int i = 0; i < kMessages; ++i) {
          const int64_t bytes = bytes_of(i);
          if (const Status status = channel.Receive(data.data(), bytes); !status.ok()) {
            return status.ToString();
          }
          std::iota(expected.begin(), expected.end(), static_cast<uint8_t>(i));
          if (!std::equal(data.begin(), data.begin() + bytes, expected.begin())) {
            return fmt::format("message {} is wrong", i);
          }
        }
        return channel.counters().calls == kMessages ? "" : "miscounted";
      });
}

TEST_P(ChannelOn, SendBlocksExactlyWhenCapacityMessagesAreUnreceived) {
  constexpr int kCapacity = 3;
  std::atomic<int> sent{0};
  Exchange(
      kCapacity, 1 << 20,
      [&](Channel& channel) -> std::string {
        const std::vector<uint8_t> data(1 << 20);
        for (int i = 0; i < 3 * kCapacity; ++i) {
          if (const Status status = channel.Send(data.data(), 1 << 20); !status.ok()) {
            return status.ToString();
          }
          sent.fetch_add(1);
        }
        return "";
      },
      [&](Channel& channel) -> std::string {
        std::vector<uint8_t> data(1 << 20);
        for (int received = 0; received < 3 * kCapacity; ++received) {
          // Everything up to the capacity goes through without a receive; nothing beyond it does.
          const int allowed = std::min(received + kCapacity, 3 * kCapacity);
          const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
          while (sent.load() < allowed && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
          }
          const auto settle = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
          while (std::chrono::steady_clock::now() < settle) {
            std::this_thread::yield();
          }
          if (sent.load() != allowed) {
            return fmt::format("{} sent with {} received", sent.load(), received);
          }
          if (const Status status = channel.Receive(data.data(), 1 << 20); !status.ok()) {
            return status.ToString();
          }
        }
        return "";
      });
}

TEST_P(ChannelOn, MessagesSentBeforeAnOrderlyCloseAreDelivered) {
  const ClusterSpec spec = SpecOf(GetParam());
  if (GetParam().per_process == 2) {
    GTEST_SKIP() << "one process has one fabric";
  }
  if (GetParam().nccl) {
    GTEST_SKIP() << "a receiver does not learn from NCCL that its peer has closed";
  }
  const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
    const auto ends = site.fabric->MakeChannel("c", 0, 1, 4, 1 << 20).value();
    if (const Status status = site.fabric->Connect(); !status.ok()) {
      return status.ToString();
    }
    std::vector<uint8_t> data(1 << 20, 42);
    if (site.process == 0) {
      for (int i = 0; i < 4; ++i) {
        if (const Status status = ends.sender->Send(data.data(), 1 << 20); !status.ok()) {
          return status.ToString();
        }
      }
      return "";  // the fabric closes at once
    }
    for (int i = 0; i < 4; ++i) {
      std::fill(data.begin(), data.end(), uint8_t{0});
      if (const Status status = ends.receiver->Receive(data.data(), 1 << 20); !status.ok()) {
        return status.ToString();
      }
      if (data != std::vector<uint8_t>(1 << 20, 42)) {
        return "wrong bytes";
      }
    }
    const Status late = ends.receiver->Receive(data.data(), 1);
    const bool named = late.message().find("rank 0 (worker-0)") != std::string::npos;
    return late.code() == StatusCode::kUnavailable && named ? "" : late.ToString();
  });
  EXPECT_EQ(results, std::vector<std::string>(2));
}

TEST_P(ChannelOn, UnexpectedLengthIsInternalAndNamesTheSender) {
  if (GetParam().nccl) GTEST_SKIP() << "NCCL does not carry lengths";
  Exchange(
      2, 64,
      [](Channel& channel) -> std::string {
        const char data[64] = {};
        const Status too_long = channel.Send(data, 65);
        const Status status = channel.Send(data, 10);
        return too_long.code() == StatusCode::kInvalidArgument && status.ok() ? ""
                                                                              : status.ToString();
      },
      [](Channel& channel) -> std::string {
        char data[64];
        const Status status = channel.Receive(data, 12);
        const bool named = status.message().find("rank 0 (worker-0)") != std::string::npos;
        return status.code() == StatusCode::kInternal && named ? "" : status.ToString();
      });
}

INSTANTIATE_TEST_SUITE_P(Transports, ChannelOn,
                         testing::Values(Path{"Memory", 2, Transport::kAuto, "memory"},
                                         Path{"SharedMemory", 1, Transport::kAuto, "shared_memory"},
                                         Path{"Tcp", 1, Transport::kTcp, "tcp"},
                                         Path{"Nccl", 1, Transport::kAuto, "nccl", true},
                                         Path{"NcclMemory", 2, Transport::kAuto, "nccl", true}),
                         [](const testing::TestParamInfo<Path>& path) {
                           return std::string(path.param.name);
                         });

// Many channels and a group share one connection: none may hold up another.
class ChannelMix : public testing::TestWithParam<bool> {};

TEST_P(ChannelMix, ChannelsAndGroupsOfOnePairDoNotBlockEachOther) {
  const ClusterSpec spec = GetParam() ? NcclCluster(4, 2) : EvenCluster(4, 2, Transport::kTcp);
  const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
    auto groups = site.fabric->MakeGroup("all", {0, 1, 2, 3}).value();
    // 0 -> 2 carries long messages that nobody receives until the group is done.
    const auto full = site.fabric->MakeChannel("full", 0, 2, 2, 8 << 20).value();
    const auto busy = site.fabric->MakeChannel("busy", 3, 1, 1, 100).value();
    if (const Status status = site.fabric->Connect(); !status.ok()) {
      return status.ToString();
    }
    return OnEachRank(spec, site.process, [&](int rank) -> std::string {
      Status status;
      std::vector<uint8_t> data(8 << 20, 7);
      for (int i = 0; i < 2 && rank == 0 && status.ok(); ++i) {
        status = full.sender->Send(data.data(), 8 << 20);
      }
      for (int i = 0; i < 50 && status.ok(); ++i) {
        float value = static_cast<float>(rank);
        status = groups.at(rank)->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        if (value != 6.0f) {
          return "wrong sum";
        }
        if (status.ok() && rank == 3) {
          status = busy.sender->Send(data.data(), 100);
        } else if (status.ok() && rank == 1) {
          status = busy.receiver->Receive(data.data(), 100);
        }
      }
      for (int i = 0; i < 2 && rank == 2 && status.ok(); ++i) {
        status = full.receiver->Receive(data.data(), 8 << 20);
      }
      return status.ok() ? "" : status.ToString();
    });
  });
  EXPECT_EQ(results, std::vector<std::string>(2));
}

INSTANTIATE_TEST_SUITE_P(Transports, ChannelMix, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& nccl) {
                           return std::string(nccl.param ? "Nccl" : "Tcp");
                         });

}  // namespace
}  // namespace meshwright::collective
