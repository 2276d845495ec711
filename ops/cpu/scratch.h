// Per-thread scratch memory: grows to the largest request of the thread and stays, so that steps
// after the first do not allocate and the memory stays warm in the core's cache from kernel to
// kernel.
#pragma once

#include <cstdint>

namespace meshwright::ops::cpu {

constexpr int64_t kLineFloats = 16;  // floats of 64 bytes

// So many floats, or more, that what stands behind them begins a line.
inline int64_t WholeLines(int64_t count) {
  return (count + kLineFloats - 1) / kLineFloats * kLineFloats;
}

// `count` floats aligned to 64 bytes, uninitialised, valid until the thread's next call.
float* ThreadScratch(int64_t count);

}  // namespace meshwright::ops::cpu
