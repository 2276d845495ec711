// softmax and log_softmax: a block per row, which it reads three times; the row may be written in
// place.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/rows.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int64_t kThreads = 256;

// As BlockSum: all threads get the largest.
__device__ inline float BlockMax(float value, float* part) {
  value = WarpMax(value);
  if (blockDim.x == kWarp) return value;
  const unsigned lane = threadIdx.x % kWarp;
  __syncthreads();
  if (lane == 0) part[threadIdx.x / kWarp] = value;
  __syncthreads();
  return WarpMax(part[lane < blockDim.x / kWarp ? lane : 0]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) SoftmaxKernel(const SoftmaxArgs args) {
  __shared__ float part[kWarp];
  const T* x = static_cast<const T*>(args.x) + static_cast<int64_t>(blockIdx.x) * args.width;
  T* y = static_cast<T*>(args.y) + static_cast<int64_t>(blockIdx.x) * args.width;
  float largest = ToFloat(x[0]);
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    largest = Larger(largest, ToFloat(x[i]));
  }
  largest = BlockMax(largest, part);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    sum += ExpOfDifference(ToFloat(x[i]), largest);
  }
  sum = BlockSum(sum, part);
  const float shift = logf(sum);
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float value = ToFloat(x[i]);
    y[i] = FromFloat<T>(args.log ? value - largest - shift : ExpOfDifference(value, largest) / sum);
  }
}

}  // namespace

Code launches::Softmax(const SoftmaxArgs& args, StreamHandle stream) {
  if (args.rows > kMostBlocks) return kTooManyBlocks;
  const int64_t threads = args.width <= 8 * kWarp ? kWarp : kThreads;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(args.rows, threads), SoftmaxKernel<decltype(element)>, args);
  });
}

}  // namespace meshwright::ops::cuda
