// How fast the kernels of this machine are: each runs alone, on shapes of several sizes, for a few
// milliseconds.
//
// One run before the clock starts, then the fastest of several: what disturbs makes a run slower,
// never faster. All of it takes less than two seconds on one core.
//
// Thread rule: one call at a time; starts and joins a team of threads of its own.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/dtype.h"
#include "ir/op.h"
#include "ir/schema.h"

namespace meshwright::worker {

struct KernelTiming {
  ir::Op op = ir::Op::kAdd;
  ir::DType dtype = ir::DType::kF32;  // that it computes in
  ir::OpCost cost;                    // of one run
  double seconds = 0;                 // of one run
};

// By op, then dtype, then ascending FLOPs; products of as many FLOPs and other shapes follow one
// another. The smallest `add` is all start and no work; the largest
// streams through memory. Errors: those of the kernels.
Result<std::vector<KernelTiming>> TimeKernels(int threads, const Clock& clock);

// Bytes per second that `cores` threads stream together, each its own additions from memory: the
// host's memory rate where these are all of its cores. Takes about a quarter of a second.
// Errors: those of the kernels, kResourceExhausted without memory for it.
Result<double> TimeHostStream(int cores, const Clock& clock);

// What a core keeps of its rate of products while `cores` of them compute at once, each its own: at
// most 1. Takes about a third of a second. Errors: as TimeHostStream.
Result<double> TimeHostCompute(int cores, const Clock& clock);

}  // namespace meshwright::worker
