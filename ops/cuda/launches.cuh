// The launches behind OwnKernels(), one function per kernel or chain of kernels. For .cu files
// only.
//
// Thread rule: as Kernels.
#pragma once

#include "ops/cuda/kernel_args.h"
#include "ops/cuda/training_args.h"

namespace meshwright::ops::cuda::launches {

Code Norm(const NormArgs& args, StreamHandle stream);          // norm.cu
Code NormGrad(const NormGradArgs& args, StreamHandle stream);  // norm_grad.cu
Code CopyRows(const CopyRowsArgs& args, StreamHandle stream);  // copy.cu
Code Transpose(const TransposeArgs& args, StreamHandle stream);
Code Fill(const FillArgs& args, StreamHandle stream);  // source.cu
Code RandomNormal(const RandomNormalArgs& args, StreamHandle stream);
Code LearningRate(const LearningRateArgs& args, StreamHandle stream);
Code Dropout(const DropoutArgs& args, StreamHandle stream);      // dropout.cu
Code ReduceSum(const ReduceSumArgs& args, StreamHandle stream);  // reduce.cu
Code SumSquares(const SumSquaresArgs& args, StreamHandle stream);
Code Divide(const DivideArgs& args, StreamHandle stream);  // scalar.cu
Code ClipMultiplier(const ClipMultiplierArgs& args, StreamHandle stream);
Code Embedding(const EmbeddingArgs& args, StreamHandle stream);  // embedding.cu
Code EmbeddingGrad(const EmbeddingGradArgs& args, StreamHandle stream);
Code Rotary(const RotaryArgs& args, StreamHandle stream);  // rotary.cu
Code Segments(const SegmentsArgs& args, StreamHandle stream);
Code LogSumExp(const LogSumExpArgs& args, StreamHandle stream);  // loss.cu
Code CrossEntropyGrad(const CrossEntropyGradArgs& args, StreamHandle stream);
Code Pick(const PickArgs& args, StreamHandle stream);
Code Nll(const NllArgs& args, StreamHandle stream);
Code AdamW(const AdamWArgs& args, StreamHandle stream);  // optimizer.cu
Code Sgd(const SgdArgs& args, StreamHandle stream);
Code Attention(const AttentionArgs& args, StreamHandle stream);          // attention.cu
Code AttentionGrad(const AttentionGradArgs& args, StreamHandle stream);  // attention_grad.cu

}  // namespace meshwright::ops::cuda::launches
