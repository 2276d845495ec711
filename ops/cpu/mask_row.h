// A run of consecutive elements through a dropout mask; the bits come from vectorised Philox.
#pragma once

#include <cstdint>

#include "ops/dropout_mask.h"

namespace meshwright::ops::cpu {

// out[i] = x[i] / (1 - rate) where the mask keeps element start + i, else 0. out may be x.
void MaskRow(const DropoutMask& mask, const RunContext& context, uint64_t start, const float* x,
             float* out, int64_t count);

}  // namespace meshwright::ops::cpu
