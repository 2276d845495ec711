// Which tokens of a sequence a device has: a block of places, in an order that is not that of
// positions (ir/sequence_order.h). The same for every microbatch: those split the rows of a batch.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/sequence_order.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops {

struct TokenBlock {
  int64_t start = 0;               // its first place in the sequence
  std::vector<ir::TokenRun> runs;  // what lies at its places, which count from 0

  // Places [start, start + count) of a sequence of `tokens`, in the order that `spec` says. Errors:
  // kInvalidArgument where the order does not divide the tokens.
  static Result<TokenBlock> At(const KernelSpec& spec, int64_t tokens, int64_t start,
                               int64_t count);
  // Dim 1 of a block [b, s, ...].
  static Result<TokenBlock> Of(const KernelSpec& spec, const ShardBlock& block);

  // Of the token at a place of the block.
  int64_t PositionOf(int64_t place) const;
};

}  // namespace meshwright::ops
