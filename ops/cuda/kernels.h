// Kernels: our own CUDA kernels as calls with plain arguments.
//
// Each call puts its work into `stream` and returns the runtime's code. The plugin implements it
// with the kernels of *.cu; tests run the same source on the host.
//
// Results do not depend on the order in which blocks run: sums have a fixed order.
//
// Thread rule: thread-safe; the device of the stream is in use by the calling thread.
#pragma once

#include "ops/cuda/choice_args.h"
#include "ops/cuda/experts_args.h"
#include "ops/cuda/kernel_args.h"
#include "ops/cuda/training_args.h"

namespace meshwright::ops::cuda {

// The kernels by name: X(Name) is `Code Name(const NameArgs& args, StreamHandle stream)`.
#define MW_FOR_EACH_KERNEL(X) \
  X(Norm)                     \
  X(NormGrad)                 \
  X(Softmax)                  \
  X(CopyRows)                 \
  X(Transpose)                \
  X(Fill)                     \
  X(RandomNormal)             \
  X(Noise)                    \
  X(LearningRate)             \
  X(Dropout)                  \
  X(ReduceSum)                \
  X(ReduceMax)                \
  X(SumSquares)               \
  X(ClipMultiplier)           \
  X(Embedding)                \
  X(EmbeddingGrad)            \
  X(Gather)                   \
  X(ScatterAdd)               \
  X(OneHot)                   \
  X(TopK)                     \
  X(ExpertSlots)              \
  X(Dispatch)                 \
  X(Combine)                  \
  X(CombineGradWeights)       \
  X(GroupedMatmul)            \
  X(GroupedMatmulGrad)        \
  X(Rotary)                   \
  X(Segments)                 \
  X(LogSumExp)                \
  X(CrossEntropyGrad)         \
  X(Pick)                     \
  X(Nll)                      \
  X(AdamW)                    \
  X(Sgd)                      \
  X(Attention)                \
  X(AttentionGrad)            \
  X(Adafactor)

class Kernels {
 public:
  virtual ~Kernels() = default;

#define MW_KERNEL_CALL(Name) virtual Code Name(const Name##Args& args, StreamHandle stream) = 0;
  MW_FOR_EACH_KERNEL(MW_KERNEL_CALL)
#undef MW_KERNEL_CALL
};

// Those of this folder's .cu files.
Kernels& OwnKernels();

}  // namespace meshwright::ops::cuda
