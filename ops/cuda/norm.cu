// layer_norm and rms_norm: one pass over memory where a row fits into the registers of its threads.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/rows.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kKept = 4;

template <typename T, typename R, int N, int kUnits>
__global__ void __launch_bounds__(kMaxBlockThreads) NormKernel(NormArgs args) {
  __shared__ float part[kWarp];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= args.rows) return;
  RowUnits<T, N, kUnits> x(static_cast<const T*>(args.x) + row * args.width, args.width / N);
  const float share = 1.0f / static_cast<float>(args.width);
  float mean = 0;
  if (args.mean != nullptr) {
    float sum = 0;
    x.ForEach([&](int, int64_t, const float(&values)[N]) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum += values[i];
    });
    mean = RowSum(sum, part) * share;
  }
  float square = 0;
  x.ForEach([&](int, int64_t, const float(&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) square += (values[i] - mean) * (values[i] - mean);
  });
  const float rstd = 1.0f / sqrtf(RowSum(square, part) * share + args.eps);
  R* y = static_cast<R*>(args.y) + row * args.width;
  x.ForEach([&](int, int64_t at, const float(&values)[N]) {
    float w[N];
    float out[N];
    LoadUnit<T, N>(static_cast<const T*>(args.w) + at, w);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = (values[i] - mean) * rstd * w[i];
    if (args.b != nullptr) {
      LoadUnit<T, N>(static_cast<const T*>(args.b) + at, w);
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] += w[i];
    }
    StoreUnit<R, N>(y + at, out);
  });
  if (threadIdx.x != 0) return;
  if (args.mean != nullptr) args.mean[row] = mean;
  args.rstd[row] = rstd;
}

template <typename T, typename R>
Code LaunchNorm(const NormArgs& args, StreamHandle stream) {
  constexpr int kUnit = UnitOf<T, R>();
  const int64_t lanes = args.width % kUnit == 0 ? RowLanes(args.width / kUnit, kKept) : 0;
  LaunchShape shape{{}, RowBlock(lanes == 0 ? LoopLanes(args.width) : lanes), 0};
  const int64_t blocks = (args.rows + shape.block.y - 1) / shape.block.y;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  shape.grid.x = static_cast<unsigned>(blocks);
  if (lanes == 0) return Launch(stream, shape, NormKernel<T, R, 1, 0>, args);
  return Launch(stream, shape, NormKernel<T, R, kUnit, kKept>, args);
}

}  // namespace

Code launches::Norm(const NormArgs& args, StreamHandle stream) {
  return ForType(args.type, [&](auto element) {
    return ForType(args.result, [&](auto result) {
      return LaunchNorm<decltype(element), decltype(result)>(args, stream);
    });
  });
}

}  // namespace meshwright::ops::cuda
