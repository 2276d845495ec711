#include "tests/conformance/collective/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "tests/conformance/collective/placed_fabric.h"
#include "tests/emulated/nccl_house.h"
#include "tests/machine_gpu.h"
#include "tests/unit/collective/test_authority.h"

namespace meshwright::collective {
namespace {

using Clock = std::chrono::steady_clock;

// What a process tells the others before it can make its fabric.
struct Card {
  int port = 0;
  char host_id[252] = {};
};

// Of all clusters of this process and its children. Made before anything is forked: OpenSSL keeps
// state of its own.
std::string IdentityOf(int process) {
  static const TestAuthority authority;
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> made;
    for (int i = 0; i < 8; ++i) made.push_back(authority.WorkerFolder(fmt::format("worker-{}", i)));
    return made;
  }();
  return folders[static_cast<size_t>(process)];
}

std::shared_ptr<Tls> TlsOf(const ClusterSpec& spec, int process) {
  return spec.tls ? MakeTls(IdentityOf(process)).value() : nullptr;
}

Card MakeCard(const Listener& listener) {
  Card card{.port = listener.port()};
  LocalHostId().copy(card.host_id, sizeof(card.host_id) - 1);
  return card;
}

FabricOptions MakeOptions(const ClusterSpec& spec, int process, const std::vector<Card>& cards) {
  FabricOptions options;
  for (size_t rank = 0; rank < spec.process_of_rank.size(); ++rank) {
    const auto home = static_cast<size_t>(spec.process_of_rank[rank]);
    const std::string host = spec.hosts.empty() ? "127.0.0.1" : spec.hosts[home];
    options.members.push_back({fmt::format("worker-{}", home),
                               fmt::format("{}:{}", host, cards[home].port), cards[home].host_id,
                               0x1000u + home});
  }
  options.local_ranks = spec.ranks_of(process);
  options.cluster_id = "test-cluster";
  options.generation = MeshGeneration(7);
  options.secret = "0123456789abcdef";
  options.transport = spec.transport;
  options.operation_timeout_ms = spec.operation_timeout_ms;
  options.connect_timeout_ms = spec.connect_timeout_ms;
  if (spec.adjust) {
    spec.adjust(process, options);
  }
  return options;
}

std::string RunBody(const ClusterSpec& spec, const ProcessBody& body, Site site,
                    const std::vector<Card>& cards, std::shared_ptr<Listener> listener) {
  auto fabric = MakeCpuFabric(MakeOptions(spec, site.process, cards), std::move(listener));
  if (!fabric.has_value()) {
    return fabric.error().ToString();
  }
  site.fabric = fabric->get();
  return body(site);
}

void WriteAll(int fd, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = send(fd, next, bytes, MSG_NOSIGNAL);
    if (written <= 0) {
      return;  // the other side is gone, which its owner notices
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

bool ReadAll(int fd, void* data, size_t bytes) {
  return recv(fd, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

}  // namespace

int ClusterSpec::process_count() const {
  return 1 + *std::max_element(process_of_rank.begin(), process_of_rank.end());
}

std::vector<int> ClusterSpec::ranks_of(int process) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < process_of_rank.size(); ++rank) {
    if (process_of_rank[rank] == process) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

ClusterSpec EvenCluster(int size, int per_process, Transport transport) {
  ClusterSpec spec;
  for (int rank = 0; rank < size; ++rank) {
    spec.process_of_rank.push_back(rank / per_process);
  }
  spec.transport = transport;
  return spec;
}

ClusterSpec NcclCluster(int size, int per_process) {
  ClusterSpec spec = EvenCluster(size, per_process, Transport::kAuto);
  spec.nccl = true;
  return spec;
}

namespace {

// One thread per process, each with its fabric.
std::vector<std::string> RunOnFabrics(std::vector<std::unique_ptr<Fabric>> fabrics,
                                      const std::vector<std::vector<LocalRank>>& ranks,
                                      const ProcessBody& body) {
  std::vector<std::string> results(fabrics.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < fabrics.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto fabric = MakePlacedFabric(std::move(fabrics[i]), ranks[i]);
      Site site{static_cast<int>(i), fabric.get(), [] {}};
      results[i] = body(site);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// A process of a mesh of GPUs has neither a listener nor a host id.
FabricOptions NcclOptions(const ClusterSpec& spec, int process) {
  return MakeOptions(spec, process, std::vector<Card>(static_cast<size_t>(spec.process_count())));
}

// On the GPUs of this machine, one for each rank.
std::vector<std::string> RunOnMachine(const ClusterSpec& spec, const ProcessBody& body) {
  std::string why = machine::WhyNotOnMachine(static_cast<int>(spec.process_of_rank.size()));
  if (why.empty() && machine::MachineGpus()->nccl == nullptr) why = machine::MachineGpus()->no_nccl;
  if (!why.empty()) {
    [&why] { GTEST_SKIP() << why; }();
    return std::vector<std::string>(static_cast<size_t>(spec.process_count()));
  }
  const worker::Gpus& gpus = *machine::MachineGpus();
  device::cuda::Versions versions;
  (void)gpus.driver->ReadVersions(&versions);
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<std::unique_ptr<device::Queue>> queues;
  for (size_t rank = 0; rank < spec.process_of_rank.size(); ++rank) {
    devices.push_back(device::cuda::CudaDevice::Make(*gpus.driver, gpus.indices[rank],
                                                     {.name = fmt::format("cuda:{}", rank)})
                          .value());
    queues.push_back(devices.back()->MakeQueue(true).value());
  }
  std::vector<std::vector<LocalRank>> ranks;
  std::vector<std::unique_ptr<Fabric>> fabrics;
  std::vector<Fabric*> pointers;
  for (int process = 0; process < spec.process_count(); ++process) {
    ranks.emplace_back();
    for (const int rank : spec.ranks_of(process)) {
      const auto i = static_cast<size_t>(rank);
      ranks.back().push_back({rank, devices[i].get(), queues[i].get()});
    }
    fabrics.push_back(MakeNcclFabric(NcclOptions(spec, process), ranks.back(),
                                     {.library = *gpus.nccl,
                                      .combiner = *gpus.combiner,
                                      .cuda_driver = versions.driver,
                                      .cuda_runtime = versions.runtime})
                          .value());
    pointers.push_back(fabrics.back().get());
  }
  const Status met = emulated::Introduce(pointers);
  if (!met.ok()) return std::vector<std::string>(fabrics.size(), met.ToString());
  return RunOnFabrics(std::move(fabrics), ranks, body);
}

std::vector<std::string> RunOnNccl(const ClusterSpec& spec, const ProcessBody& body) {
  if (machine::OnMachineGpus()) return RunOnMachine(spec, body);
  emulated::NcclHouse house({.process_of_rank = spec.process_of_rank});
  std::vector<std::vector<LocalRank>> ranks;
  std::vector<std::unique_ptr<Fabric>> fabrics;
  std::vector<Fabric*> pointers;
  for (int process = 0; process < spec.process_count(); ++process) {
    ranks.emplace_back();
    for (const int rank : house.ranks_of(process)) {
      ranks.back().push_back({rank, &house.device(rank), &house.collectives(rank)});
    }
    fabrics.push_back(house.MakeFabric(process, NcclOptions(spec, process)).value());
    pointers.push_back(fabrics.back().get());
  }
  const Status met = emulated::Introduce(pointers);
  if (!met.ok()) return std::vector<std::string>(fabrics.size(), met.ToString());
  std::vector<std::string> results = RunOnFabrics(std::move(fabrics), ranks, body);
  for (const std::string& misuse : house.network().misuse()) results[0] += misuse + "\n";
  return results;
}

}  // namespace

std::vector<std::string> RunAsThreads(const ClusterSpec& spec, const ProcessBody& body) {
  if (spec.nccl) return RunOnNccl(spec, body);
  const auto count = static_cast<size_t>(spec.process_count());
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<Card> cards;
  for (size_t i = 0; i < count; ++i) {
    listeners.push_back(MakeListener("127.0.0.1", 0, TlsOf(spec, static_cast<int>(i))).value());
    cards.push_back(MakeCard(*listeners.back()));
  }
  std::vector<std::string> results(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      results[i] = RunBody(spec, body, {static_cast<int>(i), nullptr, [] {}}, cards, listeners[i]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

ForkedCluster::ForkedCluster(const ClusterSpec& spec, const ProcessBody& body) {
  const int count = spec.process_count();
  if (spec.tls) (void)IdentityOf(0);
  for (int i = 0; i < count; ++i) {
    Fork(spec, body, i);
  }
  std::vector<Card> cards(static_cast<size_t>(count));
  for (size_t i = 0; i < cards.size(); ++i) {
    ReadAll(children_[i].control, &cards[i], sizeof(Card));
  }
  for (const Child& child : children_) {
    WriteAll(child.control, cards.data(), cards.size() * sizeof(Card));
  }
}

void ForkedCluster::Fork(const ClusterSpec& spec, const ProcessBody& body, int process) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid > 0) {
    close(ends[1]);
    children_.push_back({pid, ends[0], "", false, false});
    return;
  }
  close(ends[0]);
  for (const Child& sibling : children_) {
    close(sibling.control);
  }
  const int control = ends[1];
  if (spec.enter) {
    spec.enter(process);
  }
  const char* bind_address = spec.hosts.empty() ? "127.0.0.1" : "0.0.0.0";
  const std::shared_ptr<Listener> listener =
      MakeListener(bind_address, 0, TlsOf(spec, process)).value();
  const Card card = MakeCard(*listener);
  WriteAll(control, &card, sizeof(card));
  std::vector<Card> cards(static_cast<size_t>(spec.process_count()));
  if (!ReadAll(control, cards.data(), cards.size() * sizeof(Card))) {
    _exit(3);
  }
  const std::string text = RunBody(
      spec, body, {process, nullptr, [control] { WriteAll(control, "R", 1); }}, cards, listener);
  WriteAll(control, "T", 1);
  WriteAll(control, text.data(), text.size());
  _exit(0);
}

ForkedCluster::~ForkedCluster() {
  for (const Child& child : children_) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    close(child.control);
  }
}

bool ForkedCluster::Pump(Child& child, int64_t timeout_ms, const std::function<bool()>& done) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!done()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{child.control, POLLIN, 0};
    if (child.finished || left <= 0 || poll(&entry, 1, static_cast<int>(left)) <= 0) {
      return done();
    }
    char buffer[4096];
    const ssize_t bytes = recv(child.control, buffer, sizeof(buffer), 0);
    if (bytes <= 0) {
      child.finished = true;
    } else {
      child.text.append(buffer, static_cast<size_t>(bytes));
      child.ready = child.text.find('R') != std::string::npos;
    }
  }
  return true;
}

void ForkedCluster::AwaitReady(int process) {
  Child& child = children_[static_cast<size_t>(process)];
  ASSERT_TRUE(Pump(child, 60'000, [&] { return child.ready; }))
      << "process " << process << " did not get ready: " << child.text;
}

void ForkedCluster::Kill(int process) {
  kill(children_[static_cast<size_t>(process)].pid, SIGKILL);
}

void ForkedCluster::Stop(int process) {
  kill(children_[static_cast<size_t>(process)].pid, SIGSTOP);
}

std::string ForkedCluster::Result(int process, int64_t timeout_ms) {
  Child& child = children_[static_cast<size_t>(process)];
  if (!Pump(child, timeout_ms, [&] { return child.finished; })) {
    return fmt::format("no result within {} ms", timeout_ms);
  }
  const size_t start = child.text.find('T');
  return start == std::string::npos ? "died without a result" : child.text.substr(start + 1);
}

std::vector<std::string> ForkedCluster::Results() {
  std::vector<std::string> results;
  for (size_t i = 0; i < children_.size(); ++i) {
    results.push_back(Result(static_cast<int>(i)));
  }
  return results;
}

std::string OnEachRank(const ClusterSpec& spec, int process,
                       const std::function<std::string(int rank)>& body) {
  const std::vector<int> ranks = spec.ranks_of(process);
  std::vector<std::string> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = body(ranks[i]); });
  }
  std::string all;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads[i].join();
    all += results[i];
  }
  return all;
}

ProcessBody OnWorld(const ClusterSpec& spec, const RankBody& body) {
  return [spec, body](Site& site) -> std::string {
    const auto size = static_cast<int>(spec.process_of_rank.size());
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(rank);
    }
    const auto groups = site.fabric->MakeGroup("world", ranks);
    if (!groups.has_value()) {
      return groups.error().ToString();
    }
    if (const Status connected = site.fabric->Connect(); !connected.ok()) {
      return connected.ToString();
    }
    return OnEachRank(spec, site.process, [&](int rank) {
      RankSite rank_site{rank, size, groups->at(rank), site.fabric, site.report_ready};
      return body(rank_site);
    });
  };
}

}  // namespace meshwright::collective
