// Shapes of attention: q, o [b, s, h, e]; k, v [b, s, g, e]; lse [b, h, s]; kv head of query head j
// is j / (h / g).
#pragma once

#include <cstdint>

#include "ops/kernel_spec.h"

namespace meshwright::ops {

struct AttentionShape {
  int64_t b = 0;
  int64_t s = 0;
  int64_t h = 0;
  int64_t g = 0;
  int64_t e = 0;
  bool causal = true;

  int64_t heads_per_group() const { return h / g; }
  double scale() const;
  // Offset of token 0 of a head; tokens are q_stride() / kv_stride() elements apart.
  int64_t QueryOffset(int64_t batch, int64_t head) const { return (batch * s * h + head) * e; }
  int64_t KeyOffset(int64_t batch, int64_t group) const { return (batch * s * g + group) * e; }
  int64_t q_stride() const { return h * e; }
  int64_t kv_stride() const { return g * e; }
  // Keys that the query at `position` sees.
  int64_t Visible(int64_t position) const { return causal ? position + 1 : s; }
};

// Errors: kInvalidArgument unless ranks, batch, sequence and head sizes agree and g divides h.
Result<AttentionShape> AttentionShapeOf(const KernelSpec& spec);
// Of attention_qkv and its gradient. Errors: kInvalidArgument unless operand 0 is [b, s, 3, h, e].
Result<AttentionShape> AttentionQkvShapeOf(const KernelSpec& spec);

}  // namespace meshwright::ops
