// Floats of one byte, as files have them: read, never computed with.
//
//   F8_E4M3  sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, 0x7F is NaN
//   F8_E5M2  sign, 5 bits of exponent (bias 15), 2 of mantissa; infinities and NaN as f16 has them
//
// Thread rule: pure functions. Source: Micikevicius et al. 2022, FP8 formats for deep learning.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshwright::formats {

using Float8Reader = double (*)(uint8_t bits);

// By the name of a dtype in safetensors; null: it is none of these.
Float8Reader FindFloat8(std::string_view dtype_name);

}  // namespace meshwright::formats
