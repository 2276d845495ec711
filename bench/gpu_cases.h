// What mw_bench shows of a GPU, a line of JSON per case: {"case", "value", "unit", "target", "met",
// ...}; null where there is no target.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "bench/device_run.h"

namespace meshwright::bench {

// No GPU that can be used: the line {"case":"gpu","skipped":REASON} was printed.
inline constexpr int kExitNoGpu = 3;

struct GpuArgs {
  DeviceRunOptions run;  // of the first GPU
  int64_t steps = 20;    // counted ones
  int64_t warm_steps = 5;
  bool quick = false;  // small sizes, one batch: does it run at all
};

// Copies, products of each dtype, and every kernel of the job's step. Returns the exit code.
int PrintGpuKernels(const GpuArgs& args);

// The job's step: tokens/s, model FLOPs, and the part of it in which the GPU has nothing to do.
int PrintGpuStep(const GpuArgs& args);

}  // namespace meshwright::bench
