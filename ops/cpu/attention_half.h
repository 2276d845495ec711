// Attention over bf16 tensors with bf16 products (ops/cpu/half_tile.h); the softmax and all sums
// are in f32. Probabilities and gradients of scores are rounded to bf16 before they are multiplied.
//
// The same tiles in the same order as ops/cpu/attention.h.
#pragma once

#include "ops/cpu/attention.h"

namespace meshwright::ops::cpu {

// Whether this processor has the products and the shape fits them: an even head size.
bool HasHalfAttention(const AttentionShape& shape);

// REQUIRES HasHalfAttention(run.shape).
void RunHalfAttention(const AttentionRun& run, const AttentionTensors<uint16_t>& tensors);
void RunHalfAttentionGrad(const AttentionRun& run, const AttentionGradTensors<uint16_t>& tensors);

}  // namespace meshwright::ops::cpu
