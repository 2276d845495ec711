// What a device holds in each memory while its program runs, by kind.
//
// Per RUN two samples: at its begin the bytes at its fullest node, at its end what lives on.
// Persistent slots are in every sample; a RUN's workspace and the slots of messages are in the
// samples around them. Farther memories change between RUNs, with OFFLOAD and FREE: there the
// sample at a RUN's end has the fullest moment until the next one, and one at each end of the step
// has what is persistent. The largest total is what planner/memory.h calls the peak, but for
// alignment, gaps of the arena and the scratch of collectives.
//
// Thread rule: values, pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/program.h"
#include "planner/simulate.h"

namespace meshwright::report {

inline constexpr size_t kMemoryKindCount = 6;  // of ir::MemoryKind
using BytesByKind = std::array<int64_t, kMemoryKindCount>;
int64_t TotalOf(const BytesByKind& bytes);

// Of one RUN, wherever its time is.
struct RunMemory {
  int instruction = 0;
  BytesByKind peak = {};
  BytesByKind after = {};
};
// In the order of the instructions; empty: the program has nothing in this memory.
std::vector<RunMemory> MemoryOfRuns(const ir::Program& program, ir::Space space);

struct MemorySample {
  double time_s = 0;
  BytesByKind bytes = {};
  friend bool operator==(const MemorySample&, const MemorySample&) = default;
};
using MemorySeries = std::vector<MemorySample>;  // times ascend

// One series per program; empty: it has nothing in this memory. Devices with the same slots and
// instructions are worked out once.
std::vector<MemorySeries> MemoryOverTime(std::span<const ir::Program> programs,
                                         const planner::Simulation& simulation, ir::Space space);

// Of every ir::Space, from near to far.
using MemoriesOverTime = std::array<std::vector<MemorySeries>, ir::kSpaceCount>;
MemoriesOverTime AllMemoryOverTime(std::span<const ir::Program> programs,
                                   const planner::Simulation& simulation);

}  // namespace meshwright::report
