// Groups of one host whose buffers lie in shared device memory: bit for bit what plain loops and
// the staged way give, without a staged call; staged where memory is not shared or cannot be
// mapped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "base/check.h"
#include "collective/cpu/direct_group.h"
#include "device/device.h"
#include "tests/conformance/collective/cluster.h"

namespace meshwright::collective {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kCount = 9'001;  // of a block: more than a small call, and odd

// How the memory of a rank comes to its peers.
enum class Sharing : uint8_t { kShared, kNotShared, kWrongToken };

std::unique_ptr<device::Memory> AllocateFloats(int64_t count, bool shared) {
  const auto device = device::MakeCpuDevice({.name = "cpu:0", .share_memory = shared}).value();
  return device->Allocate({ir::MemoryKind::kGradients, count * 4}).value();
}

// A memory that announces another token than it has: no peer can map it.
class Misannounced final : public device::Memory {
 public:
  explicit Misannounced(const device::Memory& memory)
      : data_(memory.data()), bytes_(memory.bytes()), handle_(*memory.shared()) {
    handle_.token[1] ^= 1;
  }
  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  const device::SharedHandle* shared() const override { return &handle_; }

 private:
  std::byte* data_;
  int64_t bytes_;
  device::SharedHandle handle_;
};

// What all operations of one rank write, one after the other.
struct Buffers {
  std::unique_ptr<device::Memory> memory;
  float* input = nullptr;   // kRanks blocks
  float* output = nullptr;  // kRanks blocks

  explicit Buffers(bool shared) : memory(AllocateFloats(2 * kRanks * kCount, shared)) {
    input = reinterpret_cast<float*>(memory->data());
    output = input + kRanks * kCount;
  }
};

float ValueAt(int rank, int64_t index, int round) {
  const uint32_t bits = static_cast<uint32_t>(index * 2654435761 + rank * 40503 + round * 977);
  return static_cast<float>(static_cast<int32_t>(bits)) * 1e-5f;
}

float SumAt(int64_t index, int round) {
  float sum = ValueAt(0, index, round);
  for (int rank = 1; rank < kRanks; ++rank) {
    sum += ValueAt(rank, index, round);
  }
  return sum;
}

using Expected = std::function<float(int64_t index)>;

std::string Compare(const char* what, const Status& status, const float* got, int64_t count,
                    const Expected& expected) {
  if (!status.ok()) {
    return fmt::format("{}: {}\n", what, status.ToString());
  }
  for (int64_t i = 0; i < count; ++i) {
    const float want = expected(i);
    if (std::memcmp(&got[i], &want, sizeof(want)) != 0) {
      return fmt::format("{} at {}: {} instead of {}\n", what, i, got[i], want);
    }
  }
  return "";
}

// Every operation once.
std::string RunAll(Group& group, Buffers& buffers, int round) {
  const int me = group.rank();
  float* in = buffers.input;
  float* out = buffers.output;
  const auto fill = [&] {
    for (int64_t i = 0; i < kRanks * kCount; ++i) {
      in[i] = ValueAt(me, i, round);
    }
  };
  fill();
  std::string result =
      Compare("all_reduce", group.AllReduce(in, kRanks * kCount, ir::DType::kF32, Reduction::kSum),
              in, kRanks * kCount, [&](int64_t i) { return SumAt(i, round); });
  fill();
  result += Compare("reduce_scatter",
                    group.ReduceScatter(in, out, kCount, ir::DType::kF32, Reduction::kSum), out,
                    kCount, [&](int64_t i) { return SumAt(me * kCount + i, round); });
  result +=
      Compare("all_gather", group.AllGather(in, out, kCount, ir::DType::kF32), out, kRanks * kCount,
              [&](int64_t i) { return ValueAt(static_cast<int>(i / kCount), i % kCount, round); });
  result += Compare("all_to_all", group.AllToAll(in, out, kCount, ir::DType::kF32), out,
                    kRanks * kCount, [&](int64_t i) {
                      return ValueAt(static_cast<int>(i / kCount), me * kCount + i % kCount, round);
                    });
  const int root = round % kRanks;
  result += Compare("broadcast", group.Broadcast(in, kCount, ir::DType::kF32, root), in, kCount,
                    [&](int64_t i) { return ValueAt(root, i, round); });
  fill();  // max keeps to the accumulator
  result += Compare("max", group.AllReduce(in, kCount, ir::DType::kF32, Reduction::kMax), in,
                    kCount, [&](int64_t i) {
                      float most = ValueAt(0, i, round);
                      for (int rank = 1; rank < kRanks; ++rank) {
                        most = std::max(most, ValueAt(rank, i, round));
                      }
                      return most;
                    });
  return result;
}

// The closed forms of Counters, per member.
std::string CheckCounters(const Group& group, int rounds) {
  const int64_t all = kRanks * kCount;
  const int64_t block = (all + kRanks - 1) / kRanks;
  const int64_t odd_block = (kCount + kRanks - 1) / kRanks;
  const int64_t reduced = all + (kRanks - 2) * block + kCount + (kRanks - 2) * odd_block;
  const Counters counters = group.counters(Kind::kAllReduce);
  const Counters gathered = group.counters(Kind::kAllGather);
  const bool right = counters.calls == 2 * rounds && counters.bytes == rounds * reduced * 4 &&
                     gathered.bytes == rounds * (kRanks - 1) * kCount * 4;
  return right ? "" : fmt::format("{} calls, {} bytes\n", counters.calls, counters.bytes);
}

// `sharing` by rank. Returns the failures of all rounds, or the number of staged calls.
ProcessBody WithMemory(const ClusterSpec& spec, const std::map<int, Sharing>& sharing) {
  return [spec, sharing](Site& site) -> std::string {
    std::map<int, Buffers> buffers;
    for (const int rank : spec.ranks_of(site.process)) {
      const Sharing how = sharing.count(rank) > 0 ? sharing.at(rank) : Sharing::kShared;
      Buffers& own = buffers.try_emplace(rank, how != Sharing::kNotShared).first->second;
      const Status shared = how == Sharing::kWrongToken
                                ? site.fabric->Share(Misannounced(*own.memory))
                                : site.fabric->Share(*own.memory);
      if (!shared.ok()) {
        return shared.ToString();
      }
    }
    return OnWorld(spec, [&](RankSite& rank_site) -> std::string {
      constexpr int kRounds = 3;
      std::string result;
      for (int round = 0; round < kRounds; ++round) {
        result += RunAll(*rank_site.world, buffers.at(rank_site.rank), round);
      }
      if (rank_site.rank == 0) {  // the last blocks of other members are shorter
        result += CheckCounters(*rank_site.world, kRounds);
      }
      const auto* direct = dynamic_cast<DirectGroup*>(rank_site.world);
      return result + fmt::format("staged {};", direct == nullptr ? -1 : direct->staged_calls());
    })(site);
  };
}

TEST(InPlace, ThreadsOfSeveralFabricsMapEachOthersMemory) {
  const ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kAuto);
  EXPECT_EQ(RunAsThreads(spec, WithMemory(spec, {})),
            std::vector<std::string>(kRanks, "staged 0;"));
}

TEST(InPlace, ProcessesMapEachOthersMemory) {
  const ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kSharedMemory);
  EXPECT_EQ(ForkedCluster(spec, WithMemory(spec, {})).Results(),
            std::vector<std::string>(kRanks, "staged 0;"));
}

TEST(InPlace, ThreadsAndProcessesMix) {
  const ClusterSpec spec = EvenCluster(kRanks, 2, Transport::kAuto);
  const std::vector<std::string> expected{"staged 0;staged 0;", "staged 0;"};
  EXPECT_EQ(ForkedCluster(spec, WithMemory(spec, {})).Results(), expected);
}

// Six calls a round. All but the broadcasts of other ranks read what is not shared.
TEST(InPlace, BuffersThatAreNotSharedAreStagedWithTheSameBits) {
  const ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kAuto);
  EXPECT_EQ(RunAsThreads(spec, WithMemory(spec, {{1, Sharing::kNotShared}})),
            std::vector<std::string>(kRanks, "staged 16;"));
  const ClusterSpec mixed = EvenCluster(kRanks, 2, Transport::kAuto);
  const std::vector<std::string> expected{"staged 16;staged 16;", "staged 16;"};
  EXPECT_EQ(RunAsThreads(mixed, WithMemory(mixed, {{1, Sharing::kNotShared}})), expected);
}

TEST(InPlace, MemoryThatCannotBeMappedIsStagedWithTheSameBits) {
  const ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kAuto);
  EXPECT_EQ(RunAsThreads(spec, WithMemory(spec, {{2, Sharing::kWrongToken}})),
            std::vector<std::string>(kRanks, "staged 18;"));
}

// One process refuses shared memory with one other; the third has both mapped.
TEST(InPlace, ABoardThatOneProcessCannotMapIsRefusedForAll) {
  ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kAuto);
  spec.adjust = [](int process, FabricOptions& options) {
    if (process == 2) {
      options.members[0].host_id = "elsewhere";
    }
  };
  const auto results = RunAsThreads(spec, WithMemory(spec, {}));
  EXPECT_EQ(results[0], "staged 18;");
  EXPECT_EQ(results[1], "staged 18;");
  EXPECT_EQ(results[2], "staged -1;") << "it made a group of pipes";
}

TEST(InPlace, TcpTakesNoSharedMemory) {
  const ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kTcp);
  EXPECT_EQ(RunAsThreads(spec, WithMemory(spec, {})),
            std::vector<std::string>(kRanks, "staged -1;"));
}

TEST(InPlace, MemoryIsSharedBeforeConnecting) {
  const ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  const auto results = RunAsThreads(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        const auto memory = AllocateFloats(16, true);
        float value = 0;
        const Status late = site.fabric->Share(*memory);
        const Status reduced = site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        return fmt::format("{} {}", static_cast<int>(late.code()), reduced.ok());
      }));
  const int code = static_cast<int>(StatusCode::kFailedPrecondition);
  EXPECT_EQ(results, std::vector<std::string>(2, fmt::format("{} true", code)));
}

TEST(InPlace, AMemoryServesOneGenerationAfterTheOther) {
  const auto listeners = {MakeListener("127.0.0.1", 0).value(),
                          MakeListener("127.0.0.1", 0).value()};
  std::vector<std::unique_ptr<device::Memory>> memories;
  for (int rank = 0; rank < 2; ++rank) {
    memories.push_back(AllocateFloats(kCount, true));
  }
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    FabricOptions options;
    options.generation = MeshGeneration(generation);
    for (const auto& listener : listeners) {
      const uint64_t process = options.members.size() + 1;
      options.members.push_back({fmt::format("worker-{}", process),
                                 fmt::format("127.0.0.1:{}", listener->port()), LocalHostId(),
                                 process});
    }
    const auto run = [&](int rank) -> std::string {
      FabricOptions own = options;
      own.local_ranks = {rank};
      auto fabric = MakeCpuFabric(own, *(listeners.begin() + rank)).value();
      const device::Memory& memory = *memories[static_cast<size_t>(rank)];
      auto* data = reinterpret_cast<float*>(memory.data());
      std::fill(data, data + kCount, static_cast<float>(generation));
      Group* group = fabric->MakeGroup("world", {0, 1}).value().at(rank);
      MW_CHECK(fabric->Share(memory).ok() && fabric->Connect().ok());
      const Status status = group->AllReduce(data, kCount, ir::DType::kF32, Reduction::kSum);
      const bool right = data[kCount - 1] == 2 * static_cast<float>(generation);
      return fmt::format("{} {} staged {}", status.ToString(), right,
                         dynamic_cast<DirectGroup*>(group)->staged_calls());
    };
    std::string other;
    std::thread thread([&] { other = run(1); });
    EXPECT_EQ(run(0), "ok true staged 0");
    thread.join();
    EXPECT_EQ(other, "ok true staged 0");
  }
}

class DeathInPlace : public testing::TestWithParam<Kind> {};

Status RunOnce(Kind kind, Group& group, Buffers& buffers, int i) {
  switch (kind) {
    case Kind::kAllReduce:
      return group.AllReduce(buffers.input, kRanks * kCount, ir::DType::kF32, Reduction::kMax);
    case Kind::kReduceScatter:
      return group.ReduceScatter(buffers.input, buffers.output, kCount, ir::DType::kF32,
                                 Reduction::kSum);
    default:
      return group.Broadcast(buffers.input, kCount, ir::DType::kF32, i % kRanks);
  }
}

TEST_P(DeathInPlace, EverySurvivorNamesTheKilledRankWithinTwoSeconds) {
  const ClusterSpec spec = EvenCluster(kRanks, 1, Transport::kAuto);
  ForkedCluster cluster(spec, [&](Site& site) -> std::string {
    Buffers buffers(true);
    MW_CHECK(site.fabric->Share(*buffers.memory).ok());
    return OnWorld(spec, [&](RankSite& rank_site) -> std::string {
      Status status;
      for (int i = 0; status.ok(); ++i) {
        if (i == 3) {
          rank_site.report_ready();
        }
        status = RunOnce(GetParam(), *rank_site.world, buffers, i);
      }
      const int64_t staged = dynamic_cast<DirectGroup*>(rank_site.world)->staged_calls();
      return fmt::format("{} staged {}", status.ToString(), staged);
    })(site);
  });
  for (int process = 0; process < kRanks; ++process) {
    cluster.AwaitReady(process);
  }
  const auto start = std::chrono::steady_clock::now();
  cluster.Kill(1);
  const std::string first = cluster.Result(0, 5'000);
  const std::string last = cluster.Result(2, 5'000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_NE(first.find("rank 1 (worker-1)"), std::string::npos) << first;
  EXPECT_NE(first.find("staged 0"), std::string::npos) << first;
  EXPECT_EQ(first, last) << "all survivors report the same first cause";
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeathInPlace,
                         testing::Values(Kind::kAllReduce, Kind::kReduceScatter, Kind::kBroadcast),
                         [](const testing::TestParamInfo<Kind>& kind) {
                           return std::string(KindName(kind.param));
                         });

// The last to leave says goodbye while others still wait: no deadline has to pass.
TEST(InPlace, APeerThatClosesItsFabricIsNamedAtOnce) {
  const ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  const auto results =
      RunAsThreads(spec, OnWorld(spec, [](RankSite& site) -> std::string {
                     float value = 1;
                     Status status;
                     for (int i = 0; status.ok() && i < 2 - site.rank; ++i) {
                       status = site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
                     }
                     return status.ToString();
                   }));
  EXPECT_EQ(results[1], "ok");
  EXPECT_NE(results[0].find("rank 1 (worker-1) closed its fabric"), std::string::npos)
      << results[0];
}

}  // namespace
}  // namespace meshwright::collective
