// Mixed precision: matrix products and attention in a 16-bit type, everything that needs range or
// exact sums in f32.
//
// Params stay f32 (master weights); products read them through a cast, which the planner computes
// once per step. Which type an op computes in:
//   16-bit    einsum (but with a scalar result), attention, attention_qkv, products of experts and
//             tokens on their way to and from them (but not the weights of a token's experts)
//   follows   elementwise ops, rotary and ops that only move values: 16-bit when no f32 operand
//   comes
//             of the batch, so that bias and gate stay 16-bit and the residual stream f32
//   f32       all else: norms, embeddings, losses, reductions
// Products accumulate in f32. bf16 has the range of f32, so the loss is not scaled.
//
// Thread rule: pure functions. Source: Micikevicius et al., 2018 (master weights); the lists of ops
// follow those of automatic mixed precision in common frameworks.
#pragma once

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

// The loss graph with casts. `compute`: a 16-bit float type. Outputs keep their types.
// Errors: kInvalidArgument: a type that is no 16-bit float.
Result<Graph> ToMixedPrecision(const Graph& loss, DType compute);

// A cast of a product, a sum or a norm that nothing else reads becomes its attribute 'dtype': one
// rounding and one pass less. For a graph and, once more, for its gradient.
Result<Graph> FoldCasts(const Graph& graph);

// Of a graph in mixed precision: params that products read through a cast are of `compute`
// themselves, for programs that renew no weights. A table whose rows are looked up, too, gives out
// rows of that type, which are widened.
Result<Graph> WithHalfParams(const Graph& mixed, DType compute);

// Gradients of f32 params as the 16-bit products made them: of a differentiated graph, before
// FoldCasts. A gradient that is the sum of several stays f32.
Result<Graph> NarrowGradients(const Graph& differentiated);

}  // namespace meshwright::ir
