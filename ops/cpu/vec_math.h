// The native ops of formulas (ir/elementwise.h) as vector loops. Same rules as vec_elementwise.h.
#pragma once

#include <cstdint>

#include "ir/op.h"

namespace meshwright::ops::cpu {

// out[i] = op(x[i], y[i]); ops of one operand do not read y. `value` is the constant of scale and
// shift. REQUIRES a native op of floats.
void VecNative(ir::Op op, const float* x, const float* y, float value, float* out, int64_t count);

}  // namespace meshwright::ops::cpu
