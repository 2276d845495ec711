// Random jobs of pipeline x SPMD programs, correct by construction: what a planner could emit,
// without the planner.
//
// A job has stages with meshes of data x tensor devices, microbatches, a GPipe or 1F1B order,
// boundary tensors that are cut differently on both sides, gradient accumulators (transient or
// persistent), reductions over both axes, an optional tied gradient sent from the first to the last
// stage, and frees at the last use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace meshwright::ir::testing {

struct GeneratedJob {
  std::vector<Program> programs;  // one per device
  std::string description;
};

// Channels hold at least what one microbatch sends; kTight ones may hold a single tile, so that
// some jobs hang.
enum class Channels : uint8_t { kAmple, kTight };

// Equal seeds give equal jobs.
GeneratedJob GenerateJob(uint64_t seed, Channels channels = Channels::kAmple);

}  // namespace meshwright::ir::testing
