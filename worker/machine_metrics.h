// The metrics of a worker's machine: room on the disks that it writes to, and the health of its
// GPUs (worker/gpu_health.h).
//
// Thread rule: a function; what it adds is called at each scrape.
#pragma once

#include <string>

#include "base/metrics.h"
#include "worker/gpus.h"

namespace meshwright::worker {

// Folders that are empty are not asked for; without GPUs, or without NVML, there is no health.
struct WorkerDisks {
  std::string cache;
  std::string scratch;
};
void AddMachineMetrics(MetricsRegistry& registry, const WorkerDisks& disks, const Gpus& gpus);

}  // namespace meshwright::worker
