// What a fabric accepts, and groups whose members are threads of one process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "collective/communicator.h"
#include "collective/cpu/wait.h"

namespace meshwright::collective {
namespace {

FabricOptions LocalOptions(int size) {
  FabricOptions options;
  for (int rank = 0; rank < size; ++rank) {
    options.members.push_back({"worker-0", "127.0.0.1:1", "host", 1});
    options.local_ranks.push_back(rank);
  }
  return options;
}

std::unique_ptr<Fabric> LocalFabric(int size) {
  return MakeCpuFabric(LocalOptions(size), nullptr).value();
}

TEST(CpuFabric, RefusesOptionsThatContradictThemselves) {
  const auto code = [](const FabricOptions& options) {
    const auto fabric = MakeCpuFabric(options, nullptr);
    return fabric.has_value() ? StatusCode::kOk : fabric.error().code();
  };
  EXPECT_EQ(code(LocalOptions(2)), StatusCode::kOk);
  EXPECT_EQ(code(FabricOptions()), StatusCode::kInvalidArgument);
  FabricOptions options = LocalOptions(2);
  options.local_ranks = {0};  // rank 1 has the same process id
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options.local_ranks = {0, 2};
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options.local_ranks = {0, 0, 1};
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = LocalOptions(2);
  options.operation_timeout_ms = -1;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = LocalOptions(2);
  options.members[1].process_id = 2;
  options.local_ranks = {0};  // a remote rank needs a listener
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
}

TEST(CpuFabric, RefusesBadGroupsAndChannels) {
  const auto fabric = LocalFabric(3);
  const auto group_code = [&](const char* name, std::vector<int> ranks) {
    return fabric->MakeGroup(name, std::move(ranks)).error().code();
  };
  EXPECT_EQ(group_code("g", {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(group_code("g", {0, 3}), StatusCode::kInvalidArgument);
  EXPECT_EQ(group_code("g", {1, 1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(group_code("", {0, 1}), StatusCode::kInvalidArgument);
  ASSERT_TRUE(fabric->MakeGroup("g", {2, 0}).has_value());
  EXPECT_EQ(group_code("g", {0, 1}), StatusCode::kAlreadyExists);

  EXPECT_EQ(fabric->MakeChannel("c", 0, 5, 1, 8).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fabric->MakeChannel("c", 0, 1, 0, 8).error().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(fabric->MakeChannel("c", 0, 1, 1, 8).has_value());
  EXPECT_EQ(fabric->MakeChannel("c", 1, 0, 1, 8).error().code(), StatusCode::kAlreadyExists);
}

TEST(CpuFabric, GroupOrderIsTheListOrder) {
  const auto fabric = LocalFabric(3);
  const auto groups = fabric->MakeGroup("g", {2, 0}).value();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups.at(2)->rank(), 0);
  EXPECT_EQ(groups.at(0)->rank(), 1);
  EXPECT_EQ(groups.at(0)->size(), 2);
  EXPECT_EQ(groups.at(0)->name(), "g");
  EXPECT_STREQ(fabric->transport(1), "memory");
}

TEST(CpuFabric, BadArgumentsAreRefusedWithoutTraffic) {
  const auto fabric = LocalFabric(2);
  Group* group = fabric->MakeGroup("g", {0, 1}).value().at(0);
  float data[4] = {};
  EXPECT_EQ(group->AllReduce(data, -1, ir::DType::kF32, Reduction::kSum).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(group->AllReduce(nullptr, 1, ir::DType::kF32, Reduction::kSum).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(group->AllReduce(data, 1, ir::DType::kBool, Reduction::kSum).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(group->Broadcast(data, 1, ir::DType::kF32, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(fabric->status().ok());
  EXPECT_EQ(group->counters(Kind::kAllReduce).calls, 0);
}

TEST(DirectGroup, MissingMembersAreNamedAtTheDeadlineAndTheFabricIsAborted) {
  FabricOptions options = LocalOptions(3);
  options.operation_timeout_ms = 60;
  const auto fabric = MakeCpuFabric(options, nullptr).value();
  const auto groups = fabric->MakeGroup("g", {0, 1, 2}).value();
  Status statuses[2];
  std::thread other([&] {
    float value = 0;
    statuses[1] = groups.at(1)->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
  });
  float value = 0;
  statuses[0] = groups.at(0)->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
  other.join();
  EXPECT_EQ(statuses[0], statuses[1]) << "one first cause";
  EXPECT_EQ(statuses[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(statuses[0].message().find("rank 2 (worker-0) did not come"), std::string::npos)
      << statuses[0];
  EXPECT_EQ(groups.at(2)->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum), statuses[0])
      << "later calls return the first cause";
}

// Without a deadline a call outlasts any peer that is alive: it ends with the peer, or by an abort.
TEST(DirectGroup, WithoutADeadlineASlowPeerIsWaitedFor) {
  FabricOptions options = LocalOptions(2);
  options.operation_timeout_ms = 0;
  const auto fabric = MakeCpuFabric(options, nullptr).value();
  const auto groups = fabric->MakeGroup("g", {0, 1}).value();
  const auto ends = fabric->MakeChannel("c", 0, 1, 1, 8).value();
  float sums[2] = {1, 2};
  int64_t message = 0;
  std::atomic<bool> done{false};
  std::thread waiting([&] {
    EXPECT_TRUE(groups.at(1)->AllReduce(&sums[1], 1, ir::DType::kF32, Reduction::kSum).ok());
    EXPECT_TRUE(ends.receiver->Receive(&message, sizeof(message)).ok());
    done = true;
  });
  // The peer is slower than several looks of who waits.
  WaitWord never;
  const auto sleep = [&] {
    AbortLatch latch;
    const auto end = std::chrono::steady_clock::now() + 4 * std::chrono::milliseconds(kWaitSliceMs);
    (void)WaitOn(never, [] { return false; }, {&latch, nullptr, end});
  };
  sleep();
  EXPECT_FALSE(done);
  EXPECT_TRUE(groups.at(0)->AllReduce(&sums[0], 1, ir::DType::kF32, Reduction::kSum).ok());
  sleep();
  EXPECT_FALSE(done);
  const int64_t sent = 7;
  EXPECT_TRUE(ends.sender->Send(&sent, sizeof(sent)).ok());
  waiting.join();
  EXPECT_EQ(sums[1], 3);
  EXPECT_EQ(message, 7);
}

TEST(DirectGroup, WithoutADeadlineAnAbortEndsTheWait) {
  FabricOptions options = LocalOptions(2);
  options.operation_timeout_ms = 0;
  const auto fabric = MakeCpuFabric(options, nullptr).value();
  const auto groups = fabric->MakeGroup("g", {0, 1}).value();
  const auto ends = fabric->MakeChannel("c", 0, 1, 1, 8).value();
  Status reduced, received;
  std::thread group([&] {
    float value = 0;
    reduced = groups.at(1)->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
  });
  std::thread channel([&] {
    int64_t message = 0;
    received = ends.receiver->Receive(&message, sizeof(message));
  });
  fabric->Abort(Aborted("the controller says so"));
  group.join();
  channel.join();
  EXPECT_EQ(reduced, Aborted("the controller says so"));
  EXPECT_EQ(received, reduced);
}

TEST(DirectGroup, MembersInDifferentCallsAreToldBoth) {
  const auto fabric = LocalFabric(2);
  const auto groups = fabric->MakeGroup("g", {0, 1}).value();
  float data[8] = {};
  Status gathered;
  std::thread other([&] {
    float own[8] = {};
    gathered = groups.at(1)->AllGather(own, own + 4, 2, ir::DType::kF32);
  });
  const Status reduced = groups.at(0)->AllReduce(data, 4, ir::DType::kF32, Reduction::kSum);
  other.join();
  EXPECT_EQ(reduced.code(), StatusCode::kInternal);
  EXPECT_EQ(reduced, gathered);
  EXPECT_NE(reduced.message().find("all_reduce #1 of 4 f32"), std::string::npos) << reduced;
  EXPECT_NE(reduced.message().find("all_gather #1 of 2 f32"), std::string::npos) << reduced;
}

// A caller may free its buffers as soon as its call failed, while other members are still inside
// the operation.
TEST(DirectGroup, AbortInTheMiddleNeverLetsAMemberReadFreedMemory) {
  for (int round = 0; round < 20; ++round) {
    const auto fabric = LocalFabric(3);
    const auto groups = fabric->MakeGroup("g", {0, 1, 2}).value();
    std::vector<std::thread> members;
    std::atomic<int> started{0};
    for (int rank = 0; rank < 3; ++rank) {
      members.emplace_back([&, rank] {
        Status status;
        while (status.ok()) {
          std::vector<double> data(150'000, 1.0);
          started.fetch_add(1);
          status =
              groups.at(rank)->AllReduce(data.data(), 150'000, ir::DType::kF64, Reduction::kSum);
          EXPECT_TRUE(!status.ok() || data[149'999] == 3.0);
        }
        EXPECT_EQ(status, Aborted("stop"));
      });
    }
    while (started.load() < 4 + round) {
      std::this_thread::yield();
    }
    fabric->Abort(Aborted("stop"));
    for (std::thread& member : members) {
      member.join();
    }
  }
}

TEST(CpuFabric, FirstCauseWinsAndAbortWithoutACauseIsCancelled) {
  const auto fabric = LocalFabric(1);
  fabric->Abort(OkStatus());
  fabric->Abort(Internal("later"));
  EXPECT_EQ(fabric->status().code(), StatusCode::kCancelled);
  EXPECT_EQ(fabric->Connect(), fabric->status());
}

TEST(HostId, IsStableAndNamesTheNamespaces) {
  EXPECT_EQ(LocalHostId(), LocalHostId());
  EXPECT_NE(LocalHostId().find("/net:"), std::string::npos);
  EXPECT_EQ(LocalHostId().find("net:0"), std::string::npos);
  EXPECT_EQ(LocalHostId().find("unknown"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::collective
