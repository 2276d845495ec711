// Shapes of attention: q, o [b, s, h, e]; k, v [b, keys, g, e]; lse [b, h, s]; kv head of query
// head j is j / (h / g).
//
// Queries and keys may be blocks of a longer sequence, in an order that is not that of their
// positions: who sees whom is a matter of positions alone.
#pragma once

#include <cstdint>

#include "ops/token_block.h"

namespace meshwright::ops {

struct AttentionShape {
  int64_t b = 0;
  int64_t s = 0;
  int64_t keys = 0;
  int64_t h = 0;
  int64_t g = 0;
  int64_t e = 0;
  bool causal = true;
  int64_t window = 0;  // keys that a query sees, itself and those before it; 0: all of them
  int64_t tokens = 0;  // of a whole row
  TokenBlock query_block;
  TokenBlock key_block;

  int64_t heads_per_group() const { return h / g; }
  // By their positions.
  bool Sees(int64_t query, int64_t key) const {
    return !causal || (key <= query && (window == 0 || query - key < window));
  }
  double scale() const;
  // Offset of token 0 of a head; tokens are q_stride() / kv_stride() elements apart.
  int64_t QueryOffset(int64_t batch, int64_t head) const { return (batch * s * h + head) * e; }
  int64_t KeyOffset(int64_t batch, int64_t group) const { return (batch * keys * g + group) * e; }
  int64_t q_stride() const { return h * e; }
  int64_t kv_stride() const { return g * e; }
  // Both are all of a row in the order of its positions.
  bool whole() const { return s == tokens && keys == tokens && query_block.runs.size() == 1; }
};

// `spec` has sharded dims of q where it is a block of a sequence; k is then all of it, or the block
// that the rank {kv_shift} before this one has. Errors: kInvalidArgument unless ranks, batch,
// sequence and head sizes agree and g divides h.
Result<AttentionShape> AttentionShapeOf(const KernelSpec& spec);
// Of attention_qkv and its gradient. Errors: kInvalidArgument unless operand 0 is [b, s, 3, h, e].
Result<AttentionShape> AttentionQkvShapeOf(const KernelSpec& spec);

}  // namespace meshwright::ops
