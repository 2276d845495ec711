// What a device's memory holds while its program runs, by kind.
//
// Per RUN two samples: at its begin the bytes at its fullest node, at its end what lives on.
// Persistent slots are in every sample; a RUN's workspace and the slots of messages are in the
// samples around them. The largest total is what planner/memory.h calls the peak, but for
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
// In the order of the instructions.
std::vector<RunMemory> MemoryOfRuns(const ir::Program& program);

struct MemorySample {
  double time_s = 0;
  BytesByKind bytes = {};
};
using MemorySeries = std::vector<MemorySample>;  // times ascend

// One series per program. Devices with the same slots and instructions are worked out once.
std::vector<MemorySeries> MemoryOverTime(std::span<const ir::Program> programs,
                                         const planner::Simulation& simulation);

}  // namespace meshwright::report
