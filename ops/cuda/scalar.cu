// clip_multiplier: scalars that stay on the device.
#include "ops/cuda/language.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

// Without any counted token there is no gradient either: multiplier and norm are 0. A norm that is
// NaN makes the multiplier NaN.
__global__ void __launch_bounds__(1) ClipMultiplierKernel(ClipMultiplierArgs args) {
  const double count = LoadAny(args.count, args.type, 0);
  double norm = 0;
  double multiplier = 0;
  if (count != 0) {
    norm = sqrt(static_cast<double>(LoadAny(args.sum_squares, args.type, 0))) / count;
    const double ratio = args.max_norm > 0 ? args.max_norm / (norm + 1e-6) : 1.0;
    multiplier = (ratio >= 1.0 ? 1.0 : ratio) / count;
  }
  StoreAny(args.multiplier, args.type, 0, static_cast<float>(multiplier));
  StoreAny(args.norm, args.type, 0, static_cast<float>(norm));
}

}  // namespace

Code launches::ClipMultiplier(const ClipMultiplierArgs& args, StreamHandle stream) {
  return Launch(stream, Blocks(1, 1), ClipMultiplierKernel, args);
}

}  // namespace meshwright::ops::cuda
