// Reference kernels: the semantics of ir/op.h as plain loops. double is the oracle that other
// backends are measured against; the float instantiation accumulates in double. One file per op
// family, as in ir/schema_*.cc; ops/kernel_table.cc says which op has which.
//
// Errors: kUnimplemented for element types without a kernel; kInvalidArgument when attributes do
// not fit the shapes. Thread rule: pure construction.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops::reference {

KernelResult MakeSource(const KernelSpec& spec);   // feed, constant, random_normal, learning_rate
KernelResult MakeFormula(const KernelSpec& spec);  // ops of ir/elementwise.h
KernelResult MakeSum(const KernelSpec& spec);
KernelResult MakeCast(const KernelSpec& spec);
KernelResult MakeDropout(const KernelSpec& spec);
KernelResult MakeNoise(const KernelSpec& spec);
KernelResult MakeSlice(const KernelSpec& spec);
KernelResult MakePad(const KernelSpec& spec);
KernelResult MakeConcat(const KernelSpec& spec);
KernelResult MakeReshape(const KernelSpec& spec);
KernelResult MakeTranspose(const KernelSpec& spec);
KernelResult MakeBroadcast(const KernelSpec& spec);
KernelResult MakeShardSlice(const KernelSpec& spec);
KernelResult MakeReduceSum(const KernelSpec& spec);
KernelResult MakeReduceMax(const KernelSpec& spec);
KernelResult MakeSumSquares(const KernelSpec& spec);
KernelResult MakeGather(const KernelSpec& spec);
KernelResult MakeScatterAdd(const KernelSpec& spec);
KernelResult MakeOneHot(const KernelSpec& spec);
KernelResult MakeTopK(const KernelSpec& spec);
KernelResult MakeExpertSlots(const KernelSpec& spec);
KernelResult MakeDispatch(const KernelSpec& spec);       // and combine, combine_grad_weights
KernelResult MakeGroupedMatmul(const KernelSpec& spec);  // and its gradient
KernelResult MakeEinsum(const KernelSpec& spec);
KernelResult MakeNorm(const KernelSpec& spec);
KernelResult MakeSoftmax(const KernelSpec& spec);    // softmax, log_softmax
KernelResult MakeConv(const KernelSpec& spec);       // conv2d and its gradients
KernelResult MakePool(const KernelSpec& spec);       // window_argmax, avg_pool, avg_pool_grad
KernelResult MakeEmbedding(const KernelSpec& spec);  // embedding, embedding_grad
KernelResult MakeSegments(const KernelSpec& spec);
KernelResult MakeRotary(const KernelSpec& spec);
KernelResult MakeAttention(const KernelSpec& spec);
KernelResult MakeAttentionQkv(const KernelSpec& spec);
KernelResult MakePagedAttention(const KernelSpec& spec);
KernelResult MakeLoss(const KernelSpec& spec);  // cross_entropy ... nll
KernelResult MakeHeadLoss(const KernelSpec& spec);
KernelResult MakeOptimizer(const KernelSpec& spec);  // clip_multiplier, adamw, sgd

}  // namespace meshwright::ops::reference
