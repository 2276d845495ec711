// Kernels: our own CUDA kernels as calls with plain arguments.
//
// Each call puts its work into `stream` and returns the runtime's code. The plugin implements it
// with the kernels of *.cu; tests run the same source on the host.
//
// Results do not depend on the order in which blocks run: sums have a fixed order.
//
// Thread rule: thread-safe; the device of the stream is in use by the calling thread.
#pragma once

#include "ops/cuda/kernel_args.h"
#include "ops/cuda/training_args.h"

namespace meshwright::ops::cuda {

class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual Code Norm(const NormArgs& args, StreamHandle stream) = 0;
  virtual Code NormGrad(const NormGradArgs& args, StreamHandle stream) = 0;
  virtual Code CopyRows(const CopyRowsArgs& args, StreamHandle stream) = 0;
  virtual Code Transpose(const TransposeArgs& args, StreamHandle stream) = 0;
  virtual Code Fill(const FillArgs& args, StreamHandle stream) = 0;
  virtual Code RandomNormal(const RandomNormalArgs& args, StreamHandle stream) = 0;
  virtual Code LearningRate(const LearningRateArgs& args, StreamHandle stream) = 0;
  virtual Code Dropout(const DropoutArgs& args, StreamHandle stream) = 0;
  virtual Code ReduceSum(const ReduceSumArgs& args, StreamHandle stream) = 0;
  virtual Code SumSquares(const SumSquaresArgs& args, StreamHandle stream) = 0;
  virtual Code Divide(const DivideArgs& args, StreamHandle stream) = 0;
  virtual Code ClipMultiplier(const ClipMultiplierArgs& args, StreamHandle stream) = 0;
  virtual Code Embedding(const EmbeddingArgs& args, StreamHandle stream) = 0;
  virtual Code EmbeddingGrad(const EmbeddingGradArgs& args, StreamHandle stream) = 0;
  virtual Code Rotary(const RotaryArgs& args, StreamHandle stream) = 0;
  virtual Code Segments(const SegmentsArgs& args, StreamHandle stream) = 0;
  virtual Code LogSumExp(const LogSumExpArgs& args, StreamHandle stream) = 0;
  virtual Code CrossEntropyGrad(const CrossEntropyGradArgs& args, StreamHandle stream) = 0;
  virtual Code Pick(const PickArgs& args, StreamHandle stream) = 0;
  virtual Code Nll(const NllArgs& args, StreamHandle stream) = 0;
  virtual Code AdamW(const AdamWArgs& args, StreamHandle stream) = 0;
  virtual Code Sgd(const SgdArgs& args, StreamHandle stream) = 0;
  virtual Code Attention(const AttentionArgs& args, StreamHandle stream) = 0;
  virtual Code AttentionGrad(const AttentionGradArgs& args, StreamHandle stream) = 0;
};

// Those of this folder's .cu files.
Kernels& OwnKernels();

}  // namespace meshwright::ops::cuda
