// Which devices a job gets: all of them at once or none (gang placement). A pure function of a
// snapshot.
//
// A job with fixed degrees needs data x tensor x pipeline devices. With an open degree (0, "auto")
// it takes every free device, in multiples of the product of the fixed ones, and waits where it
// would have more with those that ending jobs are letting go of: jobs that follow each other get
// as many. Hosts with the most free devices are used first, so that a job spans few of them; the
// chosen devices are in placement order (hosts and workers are neighbours).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/job.h"
#include "mesh/topology.h"

namespace meshwright::controller {

enum class PlacementOutcome : uint8_t {
  kPlaced,
  kNoWorkers,   // no device in the cluster: wait
  kNoCapacity,  // enough devices, but not free: wait
  kInfeasible,  // more than the cluster has
};

struct Placement {
  PlacementOutcome outcome = PlacementOutcome::kNoCapacity;
  std::vector<mesh::Device> devices;  // kPlaced: by rank
  std::string message;                // otherwise: needs, has, what would fit
  std::string kind = {};              // of the devices that were looked for
  int64_t least = 0;                  // of them: it cannot do without
};

// Devices that are free in a moment, and the jobs that let go of them.
struct ReturningDevices {
  int64_t count = 0;
  std::vector<int64_t> jobs;
};

// free: devices that can be used now. cluster_devices: all that the cluster has, also those that
// are busy or whose worker is silent for the moment.
Placement Place(const ir::ParallelSpec& parallel, std::vector<mesh::Device> free,
                const ReturningDevices& returning, int64_t cluster_devices);

}  // namespace meshwright::controller
