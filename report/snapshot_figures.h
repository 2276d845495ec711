// What snapshots of a job in the memory of its workers would take (docs/recovery.md).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"

namespace meshwright::report {

struct SnapshotFigures {
  int64_t bytes = 0;   // of one snapshot, on the worker that has most
  double seconds = 0;  // to copy it, by the profile of its devices; 0: not known
  int64_t every = 0;   // steps between two; 0: none are taken
};
// step_s: of the forecast.
SnapshotFigures SnapshotsOf(const planner::Plan& plan, const mesh::Topology& topology,
                            const ir::JobRequest& job, double step_s);

// "snapshots  2 x 14.2 MiB of host memory a worker, 3.1 ms every 4 steps (1.7 % of the time)\n".
std::string FormatSnapshots(const SnapshotFigures& figures, double step_s);

}  // namespace meshwright::report
