// How many tokens of the head are worth computing together on a cluster's devices.
//
// A block of T tokens takes 6 T FLOPs per weight of the head, and moves 12 bytes per weight: reads
// it twice in 16 bits, and reads and writes its f32 gradient. So T is such that the second takes at
// most a tenth of the first: T >= 20 FLOP/s / (bytes/s). For CPUs that is a few hundred, what their
// blocks have anyhow; GPUs want thousands.
//
// Thread rule: pure functions.
#pragma once

#include <optional>

#include "ir/job.h"
#include "mesh/topology.h"

namespace meshwright::planner {

// The job with head_block_tokens for the first device's profile; nothing where the job says itself,
// or the devices are content with few.
std::optional<ir::JobRequest> WithHeadBlocks(const ir::JobRequest& job,
                                             const mesh::Topology& topology);

}  // namespace meshwright::planner
