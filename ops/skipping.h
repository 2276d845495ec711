// Updates that may be skipped: with the attribute "skips" a multiplier of 0 says that the gradients
// of this step are no numbers (ir/loss_scale.h), and weights and moments stay as they are.
//
// Thread rule: as ops/kernel.h.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops {

// `update`: a kernel of adamw or sgd on the host. As it is where the attribute is not there.
KernelResult Skipping(const KernelSpec& spec, KernelResult update);

}  // namespace meshwright::ops
