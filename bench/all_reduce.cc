#include "bench/all_reduce.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collective/communicator.h"
#include "device/device.h"

namespace meshwright::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 64;

// What the processes tell each other before they have a fabric, in memory that a fork shares.
struct Board {
  std::array<std::atomic<int>, kMostRanks> ports = {};
  std::atomic<double> seconds = 0;
};

class SharedBoard {
 public:
  SharedBoard() {
    void* memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) board_ = new (memory) Board;
  }
  ~SharedBoard() {
    if (board_ != nullptr) ::munmap(board_, sizeof(Board));
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board* get() const { return board_; }

 private:
  Board* board_ = nullptr;
};

collective::FabricOptions FabricOf(const AllReduceOptions& options, int rank, const Board& board) {
  collective::FabricOptions fabric;
  for (int i = 0; i < options.ranks; ++i) {
    const int port = board.ports[static_cast<size_t>(i)];
    fabric.members.push_back({fmt::format("rank-{}", i), fmt::format("127.0.0.1:{}", port),
                              collective::LocalHostId(), static_cast<uint64_t>(i) + 1});
  }
  fabric.local_ranks = {rank};
  fabric.cluster_id = "bench";
  fabric.secret = "0123456789abcdef";
  if (options.tcp) fabric.transport = collective::Transport::kTcp;
  return fabric;
}

int64_t Elements(const AllReduceOptions& options) {
  return std::max<int64_t>(1, options.bytes / 4);
}

Result<double> TimeBatches(const AllReduceOptions& options, collective::Group& group, float* data) {
  const int64_t count = Elements(options);
  const auto reduce = [&](float* at, int64_t elements) {
    return group.AllReduce(at, elements, ir::DType::kF32, collective::Reduction::kSum);
  };
  std::fill(data, data + count, 1.0f);
  MW_TRY(reduce(data, count));
  const auto wanted = static_cast<float>(options.ranks);
  if (std::count(data, data + count, wanted) != count) return Fail(Internal("wrong sum"));
  std::fill(data, data + count, 0.0f);
  std::vector<double> seconds;
  for (int64_t batch = 0; batch <= options.batches; ++batch) {
    float barrier = 0;
    MW_TRY(reduce(&barrier, 1));
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < options.repeats; ++i) MW_TRY(reduce(data, count));
    const std::chrono::duration<double> taken = Clock::now() - start;
    if (batch > 0) seconds.push_back(taken.count() / static_cast<double>(options.repeats));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// A core for each rank where there are enough, as OpenMPI does; else none in particular.
std::vector<int> CoreOf(const AllReduceOptions& options, int rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &allowed)) cores.push_back(cpu);
  }
  if (static_cast<size_t>(options.ranks) > cores.size()) return {};
  return {cores[static_cast<size_t>(rank)]};
}

Status RunRank(const AllReduceOptions& options, int rank, Board& board) {
  std::shared_ptr<collective::Tls> tls;
  if (!options.tls_dir.empty()) {
    MW_ASSIGN_OR_RETURN(tls, collective::MakeTls(options.tls_dir));
  }
  MW_ASSIGN_OR_RETURN(std::shared_ptr<collective::Listener> listener,
                      collective::MakeListener("127.0.0.1", 0, tls));
  board.ports[static_cast<size_t>(rank)] = listener->port();
  for (int i = 0; i < options.ranks; ++i) {
    while (board.ports[static_cast<size_t>(i)] == 0) ::poll(nullptr, 0, 1);
  }
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<collective::Fabric> fabric,
      collective::MakeCpuFabric(FabricOf(options, rank, board), std::move(listener)));
  std::vector<int> ranks;
  for (int i = 0; i < options.ranks; ++i) ranks.push_back(i);
  MW_ASSIGN_OR_RETURN(const auto groups, fabric->MakeGroup("world", ranks));
  // Memory as a worker's device has it.
  device::DeviceOptions device_options{.name = "cpu:0", .share_memory = !options.stage};
  device_options.cpus = CoreOf(options, rank);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device,
                      device::MakeCpuDevice(std::move(device_options)));
  MW_TRY(device->EnterThread());
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<device::Memory> memory,
      device->Allocate({ir::MemoryKind::kGradients, Elements(options) * int64_t{sizeof(float)}}));
  MW_TRY(fabric->Share(*memory));
  MW_TRY(fabric->Connect());
  auto* data = reinterpret_cast<float*>(memory->data());
  MW_ASSIGN_OR_RETURN(const double seconds, TimeBatches(options, *groups.at(rank), data));
  if (rank == 0) board.seconds = seconds;
  return OkStatus();
}

}  // namespace

Result<double> AllReduceSeconds(const AllReduceOptions& options) {
  if (options.ranks < 1 || options.ranks > kMostRanks || options.repeats < 1 ||
      options.batches < 1) {
    return Fail(InvalidArgument("all_reduce: ranks, repeats and batches start at 1"));
  }
  const SharedBoard shared;
  if (shared.get() == nullptr) return Fail(ResourceExhausted("all_reduce: no shared memory"));
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) return Fail(ResourceExhausted("all_reduce: fork failed"));
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Status status = RunRank(options, rank, *shared.get());
    if (!status.ok()) fmt::print(stderr, "rank {}: {}\n", rank, status.message());
    std::fflush(stderr);
    ::_exit(status.ok() ? 0 : 1);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int outcome = 0;
    ::waitpid(child, &outcome, 0);
    failed = failed || outcome != 0;
  }
  if (failed) return Fail(Internal("all_reduce: a process failed"));
  return shared.get()->seconds.load();
}

}  // namespace meshwright::bench
