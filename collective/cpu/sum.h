// The sum of f32 pieces in list order, in one pass: each piece is read once and each output written
// once, where an Accumulator passes over its memory for every piece. Five times as fast in the
// second-level cache; the same bits.
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <span>

namespace meshwright::collective {

// output[i] = inputs[0][i] + inputs[1][i] + ... for i < count, in every output. An output may be
// one of the inputs, but may not overlap one otherwise. REQUIRES inputs and outputs.
void SumFloats(std::span<float* const> inputs, std::span<float* const> outputs, int64_t count);

}  // namespace meshwright::collective
