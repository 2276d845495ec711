// The executable compiler: the same results from fewer passes over memory.
//
// It rewrites the local graph of one executable before its memory is planned: equal nodes become
// one, nodes that nothing needs go, sums of gradients are left to the op that makes a summand
// (compile/accumulate.cc), and elementwise ops join the op that makes their operand (bias,
// gate, residual and dropout behind a matrix product; residual and bias sums behind a norm's
// gradient) as one `fused` node (ir/fused.h). What it makes is plain IR: programs stay readable,
// verifiable and runnable by any backend.
//
// Values keep their rounding: every step computes what its node did; only sums over rows, the
// head's gradient over blocks of tokens, and what an accumulator gets may be added in another
// order, and bf16 values that only steps of one node see need not be rounded. Thread rule: pure
// functions.
#pragma once

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::compile {

// Names and order of inputs and outputs are kept.
// Errors: kInternal when a rewrite does not verify (a defect of the compiler).
Result<ir::Graph> CompileExecutable(const ir::Graph& graph);

// The head and the loss as one node where the whole vocabulary is on one device: before the graph
// is partitioned, since loss and gradient move to one phase. `splits`: the rows of a batch are cut
// into this many parts (replicas and microbatches). `least_block_tokens`: logits exist for so many
// tokens at a time at least, but for 1 GiB of them and half of the tokens at most.
Result<ir::Graph> FuseHead(const ir::Graph& step, int64_t splits, int64_t least_block_tokens = 1);

// The passes of CompileExecutable, in their order.
Result<ir::Graph> MergeEqualNodes(const ir::Graph& graph);
Result<ir::Graph> AccumulateInPlace(const ir::Graph& graph);
Result<ir::Graph> FuseChains(const ir::Graph& graph);
// What is left of the sums over microbatches comes right behind its summand, not at the end, where
// all summands would be alive.
Result<ir::Graph> SumEarly(const ir::Graph& graph);

}  // namespace meshwright::compile
