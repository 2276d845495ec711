// Coming together: who is let in, who is waited for, what is agreed, and that nothing stays behind.
//
// On NCCL's fabrics: who is waited for, but NCCL does not say who did not come; generations, which
// are compared before anything starts; and what is agreed. Not secrets, strangers and addresses:
// NCCL has listeners of its own, whose ids travel as our secret does.
#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "collective/cpu/wire.h"
#include "tests/conformance/collective/cluster.h"

namespace meshwright::collective {
namespace {

std::string ConnectWorld(const ClusterSpec& spec, Site& site) {
  return OnWorld(spec, [](RankSite& rank_site) -> std::string {
    double value = rank_site.rank + 1;
    const Status status = rank_site.world->AllReduce(&value, 1, ir::DType::kF64, Reduction::kSum);
    const double expected = rank_site.size * (rank_site.size + 1) / 2.0;
    return status.ok() && value == expected ? "" : status.ToString();
  })(site);
}

int PortOf(const Member& member) {
  return std::stoi(member.address.substr(member.address.find(':') + 1));
}

int CountEntries(const char* path) {
  DIR* directory = opendir(path);
  int count = 0;
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count;
}

// A client that speaks nothing in particular.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(fd_); }
  bool connected() const { return connected_; }
  void Send(const std::vector<uint8_t>& bytes) {
    send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void FinishSending() { shutdown(fd_, SHUT_WR); }
  // True when the other side closes (after whatever it says) in time.
  bool ClosedWithin(int timeout_ms) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd entry{fd_, POLLIN, 0};
      char buffer[4096];
      if (poll(&entry, 1, 100) > 0 && recv(fd_, buffer, sizeof(buffer), 0) <= 0) {
        return true;
      }
    }
    return false;
  }

 private:
  int fd_;
  bool connected_ = false;
};

TEST(FabricConnect, PeerThatNeverComesIsNamedAtTheDeadline) {
  ClusterSpec spec = EvenCluster(3, 1, Transport::kAuto);
  spec.connect_timeout_ms = 2'000;
  const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
    return site.process == 2 ? "" : ConnectWorld(spec, site);
  });
  for (const size_t survivor : {size_t{0}, size_t{1}}) {
    EXPECT_NE(results[survivor].find("deadline exceeded"), std::string::npos) << results[survivor];
    EXPECT_NE(results[survivor].find("rank 2 (worker-2)"), std::string::npos) << results[survivor];
    EXPECT_EQ(results[survivor].find("rank 1 (worker-1)"), std::string::npos) << results[survivor];
  }
}

TEST(FabricConnect, NobodyListeningIsToldWithTheLastAttempt) {
  ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  spec.connect_timeout_ms = 2'000;
  spec.adjust = [](int process, FabricOptions& options) {
    if (process == 1) {
      options.members[0].address = "127.0.0.1:1";
    }
  };
  const auto results = RunAsThreads(spec, [&](Site& site) { return ConnectWorld(spec, site); });
  EXPECT_NE(results[1].find("127.0.0.1:1"), std::string::npos) << results[1];
  EXPECT_NE(results[1].find("Connection refused"), std::string::npos) << results[1];
}

TEST(FabricConnect, NcclSaysAtTheDeadlineThatMembersDidNotCome) {
  ClusterSpec spec = NcclCluster(3, 1);
  spec.connect_timeout_ms = 2'000;
  const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
    return site.process == 2 ? "" : ConnectWorld(spec, site);
  });
  if (IsSkipped()) return;
  for (size_t survivor = 0; survivor < 2; ++survivor) {
    EXPECT_EQ(results[survivor].find("deadline exceeded: "), 0u) << results[survivor];
    EXPECT_NE(
        results[survivor].find(fmt::format("rank {0} (worker-{0}): communicator world", survivor)),
        std::string::npos)
        << results[survivor];
  }
}

TEST(FabricConnect, WrongSecretIsRefusedAndToldOnBothSides) {
  ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  spec.connect_timeout_ms = 2'000;
  spec.adjust = [](int process, FabricOptions& options) {
    if (process == 1) {
      options.secret = "guess";
    }
  };
  const auto results = RunAsThreads(spec, [&](Site& site) { return ConnectWorld(spec, site); });
  EXPECT_NE(results[1].find("unauthenticated: "), std::string::npos) << results[1];
  EXPECT_NE(results[1].find("rank 0 (worker-0)"), std::string::npos) << results[1];
  EXPECT_NE(results[0].find("rank 1 (worker-1)"), std::string::npos) << results[0];
  EXPECT_NE(results[0].find("wrong secret"), std::string::npos) << results[0];
}

TEST(FabricConnect, OldGenerationIsRefused) {
  ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  spec.connect_timeout_ms = 2'000;
  spec.adjust = [](int process, FabricOptions& options) {
    options.generation = MeshGeneration(process == 0 ? 7 : 6);
  };
  const auto results = RunAsThreads(spec, [&](Site& site) { return ConnectWorld(spec, site); });
  EXPECT_NE(results[1].find("unauthenticated: "), std::string::npos) << results[1];
  EXPECT_NE(results[1].find("generation 6 is over"), std::string::npos) << results[1];
}

TEST(FabricConnect, GenerationsOfOneNcclMeshAreEqual) {
  ClusterSpec spec = NcclCluster(2, 1);
  spec.adjust = [](int process, FabricOptions& options) {
    options.generation = MeshGeneration(process == 0 ? 7 : 6);
  };
  const auto results = RunAsThreads(spec, [&](Site& site) { return ConnectWorld(spec, site); });
  if (IsSkipped()) return;
  for (const std::string& result : results) {
    EXPECT_EQ(result.find("failed precondition: "), 0u) << result;
    EXPECT_NE(result.find("worker-1 has 6"), std::string::npos) << result;
  }
}

TEST(FabricConnect, PeerMayComeBeforeTheFabricItIsMeantFor) {
  const auto early = MakeListener("127.0.0.1", 0).value();
  const auto late = MakeListener("127.0.0.1", 0).value();
  FabricOptions options;
  for (int rank = 0; rank < 2; ++rank) {
    const int port = rank == 0 ? late->port() : early->port();
    options.members.push_back({fmt::format("worker-{}", rank), fmt::format("127.0.0.1:{}", port),
                               LocalHostId(), 10u + static_cast<uint64_t>(rank)});
  }
  options.generation = MeshGeneration(1);
  const auto connect = [&](int rank, const std::shared_ptr<Listener>& listener) {
    FabricOptions own = options;
    own.local_ranks = {rank};
    auto fabric = MakeCpuFabric(own, listener).value();
    fabric->MakeGroup("world", {0, 1}).value();
    return fabric->Connect().ToString();
  };
  std::string dialer;
  std::thread thread([&] { dialer = connect(1, early); });
  RawClient probe(late->port());  // the listener is alive; the dialer's connection is held by it
  EXPECT_EQ(connect(0, late), "ok");
  thread.join();
  EXPECT_EQ(dialer, "ok");
}

TEST(FabricConnect, StrangersDoNotDisturbARunningFabric) {
  ClusterSpec spec = EvenCluster(2, 1, Transport::kTcp);
  std::atomic<int> port{0};
  spec.adjust = [&](int, FabricOptions& options) { port = PortOf(options.members[0]); };
  const auto results = RunAsThreads(
      spec, OnWorld(spec, [&](RankSite& site) -> std::string {
        // A wrong secret; a process that is no member; a member that is connected already.
        const Hello strangers[] = {{"test-cluster", "guess", 7, 0x1001, 0x1000},
                                   {"test-cluster", "0123456789abcdef", 7, 0x9999, 0x1000},
                                   {"test-cluster", "0123456789abcdef", 7, 0x1001, 0x1000}};
        std::vector<float> data(1000, 1.0f);
        for (int i = 0; i < 30; ++i) {
          RawClient stranger(port);
          stranger.Send(EncodeHello(strangers[i % 3]));
          const Status status =
              site.world->AllReduce(data.data(), 1000, ir::DType::kF32, Reduction::kMax);
          if (!status.ok() || !stranger.ClosedWithin(5'000)) {
            return fmt::format("round {}: {}", i, status.ToString());
          }
        }
        // Nobody closes its fabric while the other still expects its listener to answer for it.
        return site.world->AllReduce(data.data(), 1, ir::DType::kF32, Reduction::kMax).ok()
                   ? ""
                   : "failed";
      }));
  EXPECT_EQ(results, std::vector<std::string>(2));
}

TEST(DataListener, ClosesOnGarbageAndKeepsServing) {
  ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  std::atomic<int> port{0};
  spec.adjust = [&](int, FabricOptions& options) { port = PortOf(options.members[0]); };
  const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
    std::mt19937 random(static_cast<unsigned>(site.process) + 1);
    for (int round = 0; round < 60; ++round) {
      RawClient client(port);
      std::vector<uint8_t> bytes(random() % 200);
      for (uint8_t& byte : bytes) {
        byte = static_cast<uint8_t>(random());
      }
      if (round % 3 == 0 && bytes.size() >= 16) {  // a right start, then nonsense
        const std::string magic = "MW_HELLO";
        std::copy(magic.begin(), magic.end(), bytes.begin());
        bytes[8] = 1;
        bytes[9] = bytes[10] = bytes[11] = 0;
      }
      client.Send(bytes);
      client.FinishSending();
      if (client.connected() && !client.ClosedWithin(5'000)) {
        return fmt::format("round {} was not closed", round);
      }
    }
    return ConnectWorld(spec, site);
  });
  EXPECT_EQ(results, std::vector<std::string>(2));
}

TEST(DataListener, PortInUseIsUnavailableAndNamesIt) {
  const auto first = MakeListener("127.0.0.1", 0).value();
  const auto second = MakeListener("127.0.0.1", first->port());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.error().message().find(std::to_string(first->port())), std::string::npos);
  EXPECT_EQ(MakeListener("nowhere", 0).error().code(), StatusCode::kInvalidArgument);
}

TEST(DataListener, SecondFabricOfOneIdentityIsRefusedAndTheFirstStays) {
  std::shared_ptr<Listener> listener = MakeListener("127.0.0.1", 0).value();
  FabricOptions options;
  options.members = {{"worker-0", fmt::format("127.0.0.1:{}", listener->port()), LocalHostId(), 1},
                     {"worker-1", "127.0.0.1:1", LocalHostId(), 2}};
  options.generation = MeshGeneration(1);
  options.local_ranks = {0};
  const auto first = MakeCpuFabric(options, listener).value();
  EXPECT_EQ(MakeCpuFabric(options, listener).error().code(), StatusCode::kAlreadyExists);

  options.local_ranks = {1};
  const auto peer_listener = MakeListener("127.0.0.1", 0).value();
  const auto peer = MakeCpuFabric(options, peer_listener).value();
  first->MakeGroup("g", {0, 1}).value();
  peer->MakeGroup("g", {0, 1}).value();
  std::thread other([&] { EXPECT_TRUE(peer->Connect().ok()); });
  EXPECT_TRUE(first->Connect().ok());
  other.join();
}

class AgreementOn : public testing::TestWithParam<bool> {  // NCCL
 protected:
  static ClusterSpec Cluster(Transport transport) {
    return GetParam() ? NcclCluster(2, 1) : EvenCluster(2, 1, transport);
  }
};

TEST_P(AgreementOn, DifferentChannelsOnTheTwoSidesAreRefused) {
  const ClusterSpec spec = Cluster(Transport::kAuto);
  const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
    site.fabric->MakeChannel("c", 0, 1, site.process == 0 ? 2 : 3, 100).value();
    return site.fabric->Connect().ToString();
  });
  if (IsSkipped()) return;
  for (const std::string& result : results) {
    EXPECT_NE(result.find("invalid argument: "), std::string::npos) << result;
    EXPECT_NE(result.find("channel c"), std::string::npos) << result;
  }
}

TEST_P(AgreementOn, GroupsMadeLaterConnectInASecondRound) {
  for (const Transport transport : {Transport::kSharedMemory, Transport::kTcp}) {
    const ClusterSpec spec = Cluster(transport);
    const auto results = RunAsThreads(spec, [&](Site& site) -> std::string {
      const std::string first = ConnectWorld(spec, site);
      if (!first.empty()) {
        return first;
      }
      Group* later = site.fabric->MakeGroup("later", {1, 0}).value().begin()->second;
      int32_t value = 20 + site.process;
      const Status unconnected =
          later->AllReduce(&value, 0, ir::DType::kI32, Reduction::kSum);  // nothing to move
      const Status connected = site.fabric->Connect();
      const Status summed = later->AllReduce(&value, 1, ir::DType::kI32, Reduction::kSum);
      return unconnected.ok() && connected.ok() && summed.ok() && value == 41
                 ? ""
                 : fmt::format("{} {}", connected.ToString(), summed.ToString());
    });
    EXPECT_EQ(results, std::vector<std::string>(2));
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, AgreementOn, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& nccl) {
                           return std::string(nccl.param ? "Nccl" : "Cpu");
                         });

TEST(FabricConnect, SharedMemoryThatCannotBeMappedFallsBackToTcp) {
  ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  std::vector<std::string> transports(2);
  const auto run = [&] {
    return RunAsThreads(spec, [&](Site& site) -> std::string {
      const std::string result = ConnectWorld(spec, site);
      transports[static_cast<size_t>(site.process)] = site.fabric->transport(1 - site.process);
      return result;
    });
  };
  EXPECT_EQ(run(), std::vector<std::string>(2));
  EXPECT_EQ(transports, std::vector<std::string>(2, "shared_memory"));

  // One side says it is on another host, as a container with its own namespaces would.
  spec.adjust = [](int process, FabricOptions& options) {
    if (process == 1) {
      options.members[0].host_id = "elsewhere";
    }
  };
  EXPECT_EQ(run(), std::vector<std::string>(2));
  EXPECT_EQ(transports, std::vector<std::string>(2, "tcp"));

  spec.transport = Transport::kTcp;
  spec.adjust = [](int process, FabricOptions& options) {
    if (process == 0) {
      options.transport = Transport::kSharedMemory;
    }
  };
  for (const std::string& result : run()) {
    EXPECT_NE(result.find("failed precondition: "), std::string::npos) << result;
    EXPECT_NE(result.find("no shared memory"), std::string::npos) << result;
  }
}

TEST(FabricLife, NoDescriptorThreadOrMappingStaysBehind) {
  const auto run = [](Transport transport) {
    const ClusterSpec spec = EvenCluster(3, 1, transport);
    const auto results = RunAsThreads(spec, [&](Site& site) { return ConnectWorld(spec, site); });
    EXPECT_EQ(results, std::vector<std::string>(3));
  };
  run(Transport::kSharedMemory);
  const int descriptors = CountEntries("/proc/self/fd");
  const int threads = CountEntries("/proc/self/task");
  for (const Transport transport : {Transport::kSharedMemory, Transport::kTcp}) {
    for (int round = 0; round < 5; ++round) {
      run(transport);
    }
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  EXPECT_EQ(CountEntries("/proc/self/task"), threads);
}

TEST(FabricLife, DescriptorsAreNotInheritedByPrograms) {
  const ClusterSpec spec = EvenCluster(2, 1, Transport::kAuto);
  const auto results = RunAsThreads(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        if (site.rank != 0) {
          float value = 0;  // keeps the peer alive until rank 0 has looked
          return site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum).ok() ? ""
                                                                                         : "failed";
        }
        // The shell sees 0, 1, 2 and its own directory handle.
        FILE* listing =
            popen("readlink /proc/self/fd/* | grep -c -e socket -e memfd -e eventpoll", "r");
        char line[64] = {};
        const bool read = fgets(line, sizeof(line), listing) != nullptr;
        pclose(listing);
        float value = 0;
        const Status status = site.world->AllReduce(&value, 1, ir::DType::kF32, Reduction::kSum);
        return status.ok() && read && std::string(line) == "0\n" ? "" : line;
      }));
  EXPECT_EQ(results, std::vector<std::string>(2));
}

}  // namespace
}  // namespace meshwright::collective
