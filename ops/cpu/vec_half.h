// Vector conversions between bf16, as raw 16-bit values, and f32. Same rules as vec_elementwise.h.
#pragma once

#include <cstdint>

namespace meshwright::ops::cpu {

void VecWiden(const uint16_t* x, float* out, int64_t count);
// Rounds to nearest even, subnormal numbers perhaps to zero; a NaN stays one. `out` may be at x,
// and may overlap what lies behind it.
void VecNarrow(const float* x, uint16_t* out, int64_t count);

}  // namespace meshwright::ops::cpu
