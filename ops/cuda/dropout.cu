// dropout: the mask is a function of the global element, so no layout changes it.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/random.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;

// Dropped is 0 even where x is not a number.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) DropoutKernel(const DropoutArgs args) {
  PhiloxWords words(PhiloxKey(args.state->seed, args.stream),
                    static_cast<uint64_t>(args.state->step));
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  ForEachGlobalUnit<N>(args.runs, [&](int64_t i, int64_t at, int64_t start, int64_t) {
    float values[N];
    LoadUnit<T, N>(x + i, values);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool keep = words.At(static_cast<uint64_t>(start + at + j)) >> 8 >= args.threshold;
      values[j] = keep ? values[j] * args.keep_scale : 0.0f;
    }
    StoreUnit<T, N>(y + i, values);
  });
}

}  // namespace

Code launches::Dropout(const DropoutArgs& args, StreamHandle stream) {
  const int64_t elements = args.runs.runs * args.runs.run_length;
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kUnit = UnitOf<T>();
    const bool whole = args.runs.run_length % kUnit == 0;
    const LaunchShape shape = Blocks(BlocksFor(elements / (whole ? kUnit : 1), kThreads), kThreads);
    return whole ? Launch(stream, shape, DropoutKernel<T, kUnit>, args)
                 : Launch(stream, shape, DropoutKernel<T, 1>, args);
  });
}

}  // namespace meshwright::ops::cuda
