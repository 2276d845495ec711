// What a GPU's kernels read and write beside tensors; both lie in its memory.
//
// Thread rule: plain values. The order of the queue says who may touch them.
#pragma once

#include <cstdint>

namespace meshwright::ops {

// In a GPU's memory: what its kernels read of the step. Written before each step.
struct StepState {
  uint64_t seed = 0;
  int64_t step = 0;
};

// In a GPU's memory: the first bad token id that a kernel met, whatever its step. Read after each
// step; zero: none.
struct Fault {
  int32_t found = 0;  // 1 + ir::Op of the kernel
  int32_t id = 0;
  int64_t position = 0;
  int64_t table_rows = 0;
};

}  // namespace meshwright::ops
