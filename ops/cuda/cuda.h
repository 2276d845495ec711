// Kernels for GPUs: cuBLASLt for contractions, cuDNN for attention, generated code for chains of
// elementwise ops, our own kernels for the rest.
//
// This folder's .cc files belong to every build and know no header of CUDA; its .cu files are the
// plugin.
#pragma once

#include "device/device.h"
#include "ops/cuda/call.h"
#include "ops/cuda/toolkit.h"
#include "ops/kernel_spec.h"
#include "ops/token_block.h"

namespace meshwright::ops::cuda {

// A block of a sequence of `tokens` as kernels take it; in the order that `spec` says.
TokenPlaces PlacesOf(const KernelSpec& spec, const TokenBlock& block, int64_t tokens);

// What ops/kernel_table.cc names. Null where another kernel is meant, or the steps of a fused node
// one by one.
KernelResult MakeFeed(const Maker& maker);
KernelResult MakeSource(const Maker& maker);  // constant, random_normal, learning_rate
KernelResult MakeDropout(const Maker& maker);
KernelResult MakeNoise(const Maker& maker);
KernelResult MakeChain(const Maker& maker);      // one elementwise op as generated code
KernelResult MakeStructure(const Maker& maker);  // slice ... broadcast, shard_slice
KernelResult MakeReduction(const Maker& maker);  // reduce_sum, reduce_max, sum_squares
KernelResult MakeGather(const Maker& maker);
KernelResult MakeScatterAdd(const Maker& maker);
KernelResult MakeOneHot(const Maker& maker);
KernelResult MakeTopK(const Maker& maker);
KernelResult MakeExpertSlots(const Maker& maker);
KernelResult MakeDispatch(const Maker& maker);       // dispatch, combine, combine_grad_weights
KernelResult MakeGroupedMatmul(const Maker& maker);  // grouped_matmul and its gradient
KernelResult MakeEinsum(const Maker& maker);
KernelResult MakeFused(const Maker& maker);
KernelResult MakeNorm(const Maker& maker);
KernelResult MakeSoftmax(const Maker& maker);    // softmax, log_softmax
KernelResult MakeEmbedding(const Maker& maker);  // embedding, embedding_grad
KernelResult MakePosition(const Maker& maker);   // rotary, segments
KernelResult MakeAttention(const Maker& maker);
KernelResult MakeLoss(const Maker& maker);  // cross_entropy ... nll
KernelResult MakeHeadLoss(const Maker& maker);
KernelResult MakeOptimizer(const Maker& maker);  // clip_multiplier, adamw, sgd
KernelResult MakeAdafactor(const Maker& maker);

}  // namespace meshwright::ops::cuda
