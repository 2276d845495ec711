// The table of kernels: one row per op says what runs it on each backend.
//
// A row names a function of the op's family; what it takes beyond f32 and f64 is said beside it. A
// new op is a row here (those of ir/elementwise.h have theirs by themselves), one in the schema of
// ir/ and one in the op table of the tests. Thread rule: immutable.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops {

namespace cuda {
struct Maker;
}

struct KernelRow {
  // Null results of `cpu` and `cuda` mean: not for this node.
  KernelResult (*reference)(const KernelSpec&) = nullptr;
  KernelResult (*cpu)(const KernelSpec&) = nullptr;
  KernelResult (*cuda)(const cuda::Maker&) = nullptr;
  // The CPU's kernel reads and writes bf16 itself; those of other rows are widened (ops/widen.h).
  bool cpu_halves = false;
  // The kernels of reference and GPUs take every element type: they only move elements, or look
  // themselves.
  bool any_type = false;
};

// All null for what is no kernel: params and inputs are bound, collectives run by the executor.
const KernelRow& KernelsOf(ir::Op op);

// The CPU's own kernel; null when it has none for the op or its element types.
KernelResult MakeCpuKernel(const KernelSpec& spec);

}  // namespace meshwright::ops
