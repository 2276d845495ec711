// A `fused` node as its steps one after the other, each by its own kernel: the meaning of fused,
// and what runs where a backend has no kernel for the whole.
//
// Thread rule: as Kernel. Ownership: the kernel owns memory for the values between its steps; on a
// GPU it is scratch.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops {

// Errors: kUnimplemented naming a step without kernel.
KernelResult MakeComposite(const Target& target, const KernelSpec& spec);

}  // namespace meshwright::ops
