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

namespace meshwright::ops::cuda {

// Null when there is no kernel for the op or its element types. REQUIRES a CudaDevice.
KernelResult MakeCudaKernel(const KernelSpec& spec, device::Device& device, Toolkit& toolkit);

KernelResult MakeFeed(const Maker& maker);
KernelResult MakeSource(const Maker& maker);  // constant, random_normal, learning_rate
KernelResult MakeDropout(const Maker& maker);
KernelResult MakeStructure(const Maker& maker);  // slice, pad, reshape, transpose, shard_slice
KernelResult MakeReduction(const Maker& maker);  // reduce_sum, sum_squares
KernelResult MakeNorm(const Maker& maker);
KernelResult MakeEmbedding(const Maker& maker);  // embedding, embedding_grad
KernelResult MakePosition(const Maker& maker);   // rotary, segments
KernelResult MakeAttention(const Maker& maker);
KernelResult MakeLoss(const Maker& maker);       // cross_entropy ... nll, not head_loss
KernelResult MakeOptimizer(const Maker& maker);  // clip_multiplier ... divide

}  // namespace meshwright::ops::cuda
