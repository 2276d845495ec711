// Kernels for CPUs, f32 and where it pays bf16: oneDNN for contractions, Highway vectors for the
// rest.
//
// Determinism: a result never depends on the number of threads of a team. Work is cut into pieces
// whose sizes depend on shapes only; partial sums are combined in a fixed order. One thread without
// a team takes f32 products in larger tiles, which may round in another way.
#pragma once

#include "ops/kernel_spec.h"

namespace meshwright::ops::cpu {

// What ops/kernel_table.cc names. Element types are f32, i32 and, where the row says so, bf16; null
// where another kernel is meant.
KernelResult MakeSource(const KernelSpec& spec);   // constant, random_normal
KernelResult MakeFormula(const KernelSpec& spec);  // ops of ir/elementwise.h
KernelResult MakeSum(const KernelSpec& spec);
KernelResult MakeDropout(const KernelSpec& spec);
KernelResult MakeNoise(const KernelSpec& spec);
KernelResult MakeSoftmax(const KernelSpec& spec);  // softmax, log_softmax
KernelResult MakeConv(const KernelSpec& spec);     // conv2d and its gradients
KernelResult MakeCast(const KernelSpec& spec);     // between f32 and bf16
KernelResult MakeReduction(
    const KernelSpec& spec);  // reduce_sum, sum_squares; null for unusual dims
KernelResult MakeEinsum(const KernelSpec& spec);
KernelResult MakeDispatch(const KernelSpec& spec);       // and combine, combine_grad_weights
KernelResult MakeGroupedMatmul(const KernelSpec& spec);  // and its gradient
KernelResult MakeFused(const KernelSpec& spec);          // null for bodies of another form
KernelResult MakeNorm(const KernelSpec& spec);
KernelResult MakeEmbedding(const KernelSpec& spec);  // embedding, embedding_grad
KernelResult MakeRotary(const KernelSpec& spec);     // null when the head dim is split
KernelResult MakeAttention(const KernelSpec& spec);
KernelResult MakeAttentionGrad(const KernelSpec& spec);
KernelResult MakeAttentionQkv(const KernelSpec& spec);
KernelResult MakeAttentionQkvGrad(const KernelSpec& spec);
KernelResult MakePagedAttention(const KernelSpec& spec);
KernelResult MakeLoss(const KernelSpec& spec);  // cross_entropy, its gradient, logsumexp
KernelResult MakeHeadLoss(const KernelSpec& spec);
KernelResult MakeOptimizer(const KernelSpec& spec);  // adamw, sgd
KernelResult MakeAdafactor(const KernelSpec& spec);

}  // namespace meshwright::ops::cpu
