// Memory of one device by kind, read off its programs.
#pragma once

#include <vector>

#include "ir/program.h"
#include "planner/plan.h"

namespace meshwright::planner {

// Persistent slots (each name once over all programs) plus, of the program with the largest arena,
// the bytes by kind at the moment when most is live. total_bytes is what a worker allocates for a
// device: persistent bytes, the largest arena, and the scratch in which collectives pack buckets
// and blocks (a part of the workspace). Not in it: what kernels keep for themselves, such as the
// tiles of a matmul, and the buffers of the transports.
DeviceMemory PeakMemory(const std::vector<const ir::Program*>& programs);

}  // namespace meshwright::planner
