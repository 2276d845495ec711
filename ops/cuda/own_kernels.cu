// OwnKernels(): the calls of kernels.h as launches.
#include "ops/cuda/kernels.h"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

class Own final : public Kernels {
 public:
#define MW_LAUNCH(Name)                                             \
  Code Name(const Name##Args& args, StreamHandle stream) override { \
    return launches::Name(args, stream);                            \
  }
  MW_LAUNCH(Norm)
  MW_LAUNCH(NormGrad)
  MW_LAUNCH(CopyRows)
  MW_LAUNCH(Transpose)
  MW_LAUNCH(Fill)
  MW_LAUNCH(RandomNormal)
  MW_LAUNCH(LearningRate)
  MW_LAUNCH(Dropout)
  MW_LAUNCH(ReduceSum)
  MW_LAUNCH(SumSquares)
  MW_LAUNCH(Divide)
  MW_LAUNCH(ClipMultiplier)
  MW_LAUNCH(Embedding)
  MW_LAUNCH(EmbeddingGrad)
  MW_LAUNCH(Rotary)
  MW_LAUNCH(Segments)
  MW_LAUNCH(LogSumExp)
  MW_LAUNCH(CrossEntropyGrad)
  MW_LAUNCH(Pick)
  MW_LAUNCH(Nll)
  MW_LAUNCH(AdamW)
  MW_LAUNCH(Sgd)
  MW_LAUNCH(Attention)
  MW_LAUNCH(AttentionGrad)
#undef MW_LAUNCH
};

}  // namespace

Kernels& OwnKernels() {
  static Own own;
  return own;
}

}  // namespace meshwright::ops::cuda
