#include "worker/link_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "collective/communicator.h"
#include "device/device.h"

namespace meshwright::worker {
namespace {

constexpr int kRanks = 2;
constexpr int kBatches = 8;
constexpr int64_t kBytesOfFloat = sizeof(float);

// Both above what groups send as small messages, so that both take the same way.
struct Size {
  int64_t bytes = 0;
  int repeats = 0;  // of a batch
};
constexpr Size kFew{16 << 10, 50};
constexpr Size kMany{4 << 20, 2};

// One end of the pair, with memory as a device of a job has it.
struct End {
  collective::Fabric* fabric = nullptr;
  collective::Group* group = nullptr;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Memory> memory;
};

struct Seconds {
  double few = 0;
  double many = 0;
};

Status MakeEnd(int rank, collective::Fabric* fabric, collective::Group* group, End& end) {
  end.fabric = fabric;
  end.group = group;
  MW_ASSIGN_OR_RETURN(end.device, device::MakeCpuDevice({.name = fmt::format("probe:{}", rank),
                                                         .share_memory = true}));
  MW_ASSIGN_OR_RETURN(end.memory, end.device->Allocate({ir::MemoryKind::kGradients, kMany.bytes}));
  return fabric->Share(*end.memory);
}

Status Reduce(const End& end, int64_t bytes) {
  MW_CHECK(end.group != nullptr && bytes % kBytesOfFloat == 0) << bytes << " bytes";
  return end.group->AllReduce(end.memory->data(), bytes / kBytesOfFloat, ir::DType::kF32,
                              collective::Reduction::kSum);
}

// Of one call.
Result<double> TimeCalls(const End& end, const Size& size, const Clock& clock) {
  MW_CHECK(size.repeats >= 1 && size.bytes <= kMany.bytes)
      << size.repeats << " calls of " << size.bytes;
  std::vector<double> seconds;  // of each batch
  for (int batch = 0; batch < kBatches; ++batch) {
    MW_TRY(Reduce(end, kBytesOfFloat));  // a barrier
    const int64_t begin_ns = clock.NowNs();
    for (int i = 0; i < size.repeats; ++i) MW_TRY(Reduce(end, size.bytes));
    seconds.push_back(static_cast<double>(std::max<int64_t>(1, clock.NowNs() - begin_ns)) * 1e-9);
  }
  return Median(std::move(seconds)) / size.repeats;
}

Result<Seconds> TimeEnd(const End& end, const Clock& clock) {
  Seconds seconds;
  MW_ASSIGN_OR_RETURN(seconds.few, TimeCalls(end, kFew, clock));
  MW_ASSIGN_OR_RETURN(seconds.many, TimeCalls(end, kMany, clock));
  return seconds;
}

// Connects, each fabric once and by its own thread, then both ends time the same calls. The slower
// end counts.
Result<LinkTiming> TimePair(std::array<End, kRanks>& ends, const Clock& clock) {
  std::array<Result<Seconds>, kRanks> results;
  const bool one_fabric = ends[0].fabric == ends[1].fabric;
  const auto run = [&](size_t rank) -> Result<Seconds> {
    if (!one_fabric) MW_TRY(ends[rank].fabric->Connect());
    return TimeEnd(ends[rank], clock);
  };
  if (one_fabric) MW_TRY(ends[0].fabric->Connect());
  std::thread partner([&] { results[1] = run(1); });
  results[0] = run(0);
  partner.join();
  for (const Result<Seconds>& result : results) MW_TRY(result);
  const double few_s = std::max(results[0]->few, results[1]->few);
  const double many_s = std::max(results[0]->many, results[1]->many);
  // The clock's resolution, where the larger call was not slower.
  const double extra_s = std::max(1e-9, many_s - few_s);
  LinkTiming timing;
  timing.seconds_per_byte = extra_s / static_cast<double>(kMany.bytes - kFew.bytes);
  timing.latency_s =
      std::max(0.0, few_s - static_cast<double>(kFew.bytes) * timing.seconds_per_byte) / 2;
  return timing;
}

collective::FabricOptions PairOptions(const LinkTimingOptions& options) {
  collective::FabricOptions fabric;
  fabric.cluster_id = "link timing";
  fabric.connect_timeout_ms = options.timeout_ms;
  fabric.operation_timeout_ms = options.timeout_ms;
  return fabric;
}

Result<LinkTiming> TimeProcess(const LinkTimingOptions& options, const Clock& clock) {
  collective::FabricOptions fabric_options = PairOptions(options);
  for (int rank = 0; rank < kRanks; ++rank) {
    fabric_options.members.push_back({"probe", "", collective::LocalHostId(), 1});
    fabric_options.local_ranks.push_back(rank);
  }
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<collective::Fabric> fabric,
                      collective::MakeCpuFabric(std::move(fabric_options), nullptr));
  MW_ASSIGN_OR_RETURN(const auto groups, fabric->MakeGroup("pair", {0, 1}));
  std::array<End, kRanks> ends;
  for (int rank = 0; rank < kRanks; ++rank) {
    MW_TRY(MakeEnd(rank, fabric.get(), groups.at(rank), ends[static_cast<size_t>(rank)]));
  }
  return TimePair(ends, clock);
}

Result<LinkTiming> TimeHost(const LinkTimingOptions& options, collective::Transport transport,
                            const Clock& clock) {
  collective::FabricOptions fabric_options = PairOptions(options);
  fabric_options.transport = transport;
  std::array<std::shared_ptr<collective::Listener>, kRanks> listeners;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto& listener = listeners[static_cast<size_t>(rank)];
    MW_ASSIGN_OR_RETURN(listener, collective::MakeListener("127.0.0.1", 0));
    fabric_options.members.push_back({fmt::format("probe-{}", rank),
                                      fmt::format("127.0.0.1:{}", listener->port()),
                                      collective::LocalHostId(), static_cast<uint64_t>(rank) + 1});
  }
  std::array<std::unique_ptr<collective::Fabric>, kRanks> fabrics;
  std::array<End, kRanks> ends;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    collective::FabricOptions own = fabric_options;
    own.local_ranks = {rank};
    MW_ASSIGN_OR_RETURN(fabrics[r], collective::MakeCpuFabric(std::move(own), listeners[r]));
    MW_ASSIGN_OR_RETURN(const auto groups, fabrics[r]->MakeGroup("pair", {0, 1}));
    MW_TRY(MakeEnd(rank, fabrics[r].get(), groups.at(rank), ends[r]));
  }
  return TimePair(ends, clock);
}

}  // namespace

Result<LinkTimings> TimeLinks(const LinkTimingOptions& options, const Clock& clock) {
  MW_ASSIGN_OR_RETURN(const collective::Transport transport,
                      collective::ParseTransport(options.transport));
  LinkTimings timings;
  MW_ASSIGN_OR_RETURN(timings.process, TimeProcess(options, clock));
  MW_ASSIGN_OR_RETURN(timings.host, TimeHost(options, transport, clock));
  return timings;
}

}  // namespace meshwright::worker
