#include "controller/elastic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/parallel_pins.h"
#include "planner/zero_levels.h"

namespace meshwright::controller {
namespace {

// The least number that divides `rows` into parts of at most `most`, and, if there is such a one,
// is a multiple of `before`: schedules that took that many take it.
int64_t MicrobatchesFor(int64_t rows, int64_t most, int64_t before) {
  std::optional<int64_t> any;
  for (int64_t count = 1; count <= rows; ++count) {
    if (rows % count != 0 || rows / count > most) continue;
    if (count % before == 0) return count;
    if (!any) any = count;
  }
  return any.value_or(rows);
}

}  // namespace

int64_t DevicesOfReplica(const ir::ParallelSpec& had) {
  return had.context * had.tensor * had.pipeline;
}

std::optional<ir::ParallelSpec> WithFewerReplicas(const ir::ParallelSpec& had, int64_t global_batch,
                                                  int64_t devices) {
  const bool is_known = had.data >= 1 && DevicesOfReplica(had) >= 1;
  if (!is_known || !had.stage_meshes.empty() || !had.tensor_axes.empty()) return std::nullopt;
  const int64_t microbatches = std::max<int64_t>(1, had.microbatches);
  const int64_t rows_before = std::max<int64_t>(1, global_batch / had.data / microbatches);
  ir::ParallelSpec fewer = had;
  fewer.data = std::min(had.data, devices / DevicesOfReplica(had));
  while (fewer.data > 1 && global_batch % fewer.data != 0) --fewer.data;
  if (fewer.data < 1) return std::nullopt;
  if (fewer.data < had.data) {
    // Replicas that share experts: as many as divide what is left, so each has more of them.
    fewer.expert = std::gcd(std::max<int64_t>(1, had.expert), fewer.data);
    planner::ShrinkZeroGroups(fewer.data / fewer.expert, fewer);
    fewer.microbatches = MicrobatchesFor(global_batch / fewer.data, rows_before, microbatches);
  }
  return fewer;
}

void TakeDegrees(const ir::ParallelSpec& from, ir::ParallelSpec& parallel) {
  for (const ir::Pin& pin : ir::Pins()) {
    if (pin.of_layout) ir::CopyPin(pin, from, parallel);
  }
}

ir::JobRequest ToPlaceOnFewer(const ir::JobRequest& job, const std::string& kind,
                              const ir::ParallelSpec& had) {
  ir::JobRequest open = job;
  const bool shrinks = job.fault_tolerance.elastic == ir::Elastic::kShrink;
  if (shrinks && WithFewerReplicas(had, job.train.global_batch, DevicesOfReplica(had))) {
    TakeDegrees(had, open.parallel);
  }
  open.parallel.data = 0;
  // The replicas that there will be may be none that a pinned number divides.
  if (!shrinks) {
    open.parallel.expert = 0;
    for (const planner::ZeroLevel& level : planner::ZeroLevels()) open.parallel.*level.pin = 0;
  }
  open.parallel.device = kind;
  return open;
}

std::optional<ir::JobRequest> ToPlanForFewer(const ir::JobRequest& job, const std::string& kind,
                                             const ir::ParallelSpec& had, int64_t devices) {
  const ir::FaultToleranceSpec& spec = job.fault_tolerance;
  if (spec.elastic == ir::Elastic::kOff || devices < spec.min_devices) return std::nullopt;
  ir::JobRequest fewer = ToPlaceOnFewer(job, kind, had);
  if (spec.elastic == ir::Elastic::kReplan) return fewer;
  const auto degrees = WithFewerReplicas(had, job.train.global_batch, devices);
  if (!degrees) return std::nullopt;
  if (degrees->data * DevicesOfReplica(*degrees) < spec.min_devices) return std::nullopt;
  TakeDegrees(*degrees, fewer.parallel);
  return fewer;
}

int64_t WaitForSpareMs(const ir::FaultToleranceSpec& spec, bool has_program) {
  if (spec.max_wait_for_spare_s >= 0) return spec.max_wait_for_spare_s * 1000;
  return has_program ? 0 : ir::kUsualWaitForSpareS * 1000;
}

std::optional<std::vector<RankPlace>> FindSeats(const PlannedJob& plan,
                                                const std::vector<RankPlace>& wanted,
                                                const std::string& avoid,
                                                std::vector<mesh::Device> free) {
  const auto take = [&](const auto& fits) -> std::optional<RankPlace> {
    const auto it = std::find_if(free.begin(), free.end(), fits);
    if (it == free.end()) return std::nullopt;
    const RankPlace place{it->worker, it->local_index};
    free.erase(it);
    return place;
  };
  std::vector<std::optional<RankPlace>> seats;
  for (const RankPlace& rank : wanted) {
    seats.push_back(take([&](const mesh::Device& device) {
      return device.worker != avoid && device.worker == rank.worker &&
             device.local_index == rank.local_device;
    }));
  }
  std::vector<RankPlace> all;
  for (std::optional<RankPlace>& seat : seats) {
    for (const bool avoids : {true, false}) {
      if (seat) break;
      seat = take([&](const mesh::Device& device) {
        return device.memory_bytes >= plan.device_memory_bytes &&
               (!avoids || device.worker != avoid);
      });
    }
    if (!seat) return std::nullopt;
    all.push_back(*std::move(seat));
  }
  return all;
}

}  // namespace meshwright::controller
