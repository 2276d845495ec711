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
  MW_FOR_EACH_KERNEL(MW_LAUNCH)
#undef MW_LAUNCH
};

}  // namespace

Kernels& OwnKernels() {
  static Own own;
  return own;
}

}  // namespace meshwright::ops::cuda
