// How fast this machine is: each kernel alone, on shapes of several sizes, for a few milliseconds,
// and all cores of the host at once.
//
// What a run typically takes (worker/run_times.h), as steps are made of such runs: all take turns,
// for some three seconds together, since a virtual machine's cores can be one core for a second.
//
// Thread rule: one call at a time; starts and joins a team of threads of its own.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/dtype.h"
#include "ir/op.h"
#include "ir/schema.h"
#include "worker/core_share.h"

namespace meshwright::worker {

struct KernelTiming {
  ir::Op op = ir::Op::kAdd;
  ir::DType dtype = ir::DType::kF32;  // that it computes in
  ir::OpCost cost;                    // of one run
  double seconds = 0;                 // of one run
};

struct TimingOptions {
  int threads = 1;     // of a device
  int host_cores = 0;  // all that the host has; 0: what they do at once is not measured
};

struct MachineTimings {
  // By op, then dtype, then ascending FLOPs; products of as many FLOPs and other shapes follow one
  // another. The smallest `add` is all start and no work; the largest streams through memory.
  std::vector<KernelTiming> kernels;
  // Of all cores together, each its own additions from memory; 0: not measured.
  double host_bytes_per_s = 0;
  // What a core keeps of its best rate of products while all compute, each its own: at most 1.
  // 0: not measured.
  double host_compute_share = 0;
};

// Errors: those of the kernels. A host without memory to be measured costs a line in the log.
Result<MachineTimings> TimeMachine(const TimingOptions& options, const Clock& clock,
                                   const CoreMeter& meter = SystemCoreMeter());

}  // namespace meshwright::worker
