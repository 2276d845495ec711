// Kernels of 16-bit floats from those of f32: operands are widened, results rounded once. The
// correct way for every op and machine; backends have faster ones where it matters.
//
// Thread rule: as Kernel. Ownership: the kernel owns the widened copies.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops {

// Whether an operand or result is a 16-bit float.
bool HasHalves(const KernelSpec& spec);

// REQUIRES HasHalves(spec). Errors: those of making the f32 kernel.
KernelResult MakeWidened(Backend backend, const KernelSpec& spec);

}  // namespace meshwright::ops
