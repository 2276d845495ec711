// Reference kernels: the semantics of ir/op.h as plain loops. double is the oracle that other
// backends are measured against; the float instantiation accumulates in double. One file per op
// family, as in ir/schema_*.cc.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops::reference {

// Errors: kUnimplemented for ops without kernel (param, input, collectives) and for element types
// without one; kInvalidArgument when attributes do not fit the shapes.
KernelResult MakeReferenceKernel(const KernelSpec& spec);

KernelResult MakeSource(const KernelSpec& spec);  // feed, constant, random_normal, learning_rate
KernelResult MakeElementwise(const KernelSpec& spec);  // add ... silu_grad, dropout
KernelResult MakeCast(const KernelSpec& spec);
KernelResult MakeStructure(const KernelSpec& spec);  // slice ... sum_squares, shard_slice
KernelResult MakeEinsum(const KernelSpec& spec);
KernelResult MakeNorm(const KernelSpec& spec);
KernelResult MakeEmbedding(const KernelSpec& spec);  // embedding, embedding_grad
KernelResult MakeSegments(const KernelSpec& spec);
KernelResult MakeRotary(const KernelSpec& spec);
KernelResult MakeAttention(const KernelSpec& spec);
KernelResult MakeAttentionQkv(const KernelSpec& spec);
KernelResult MakeLoss(const KernelSpec& spec);
KernelResult MakeHeadLoss(const KernelSpec& spec);   // cross_entropy ... nll
KernelResult MakeOptimizer(const KernelSpec& spec);  // clip_multiplier ... divide

}  // namespace meshwright::ops::reference
