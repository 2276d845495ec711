// rotary, segments.
#include "ops/cuda/language.cuh"
#include "ops/cuda/launches.cuh"
#include "ops/cuda/token_places.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 128;

// The f32 angle between -pi and pi that is as good as `angle`: far positions have no good f32 of
// their own.
__device__ float ReducedAngle(double angle) {
  constexpr double kTurn = 6.283185307179586476925286766559;
  return static_cast<float>(angle - rint(angle * (1 / kTurn)) * kTurn);
}

// A thread has N pairs of one position in every head and batch row that its grid row takes.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) RotaryKernel(const RotaryArgs args) {
  const int64_t half = args.head_size / 2;
  const int64_t units = half / N;
  const int64_t job = GlobalThread();
  if (job >= args.sequence * units) return;
  const int64_t token = job / units;
  const int64_t pair = (job - token * units) * N;
  float cosines[N];
  float sines[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const double position = static_cast<double>(PositionOf(args.places, token));
    sincosf(ReducedAngle(position * args.frequencies[pair + i]), &sines[i], &cosines[i]);
    sines[i] *= args.sign;
  }
  const int64_t rows = args.batch * args.heads;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t batch = row / args.heads;
    const int64_t head = row - batch * args.heads;
    const int64_t at =
        ((batch * args.sequence + token) * args.heads + head) * args.head_size + pair;
    float low[N];
    float high[N];
    LoadUnit<T, N>(static_cast<const T*>(args.x) + at, low);
    LoadUnit<T, N>(static_cast<const T*>(args.x) + at + half, high);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float x = low[i];
      low[i] = x * cosines[i] - high[i] * sines[i];
      high[i] = high[i] * cosines[i] + x * sines[i];
    }
    StoreUnit<T, N>(static_cast<T*>(args.y) + at, low);
    StoreUnit<T, N>(static_cast<T*>(args.y) + at + half, high);
  }
}

// A warp per row.
__global__ void __launch_bounds__(kWarp) SegmentsKernel(SegmentsArgs args) {
  const int64_t row = blockIdx.x;
  const int32_t* ids = args.ids + row * args.width;
  int32_t before = 0;
  for (int64_t first = 0; first < args.width; first += kWarp) {
    const int64_t i = first + threadIdx.x;
    const bool here = i < args.width && ids[i] == args.separator;
    const unsigned separators = __ballot_sync(kAllLanes, here);
    if (i < args.width) {
      args.to[row * args.width + i] = before + __popc(separators & ((1u << threadIdx.x) - 1));
    }
    before += __popc(separators);
  }
}

}  // namespace

Code launches::Rotary(const RotaryArgs& args, StreamHandle stream) {
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kUnit = UnitOf<T>();
    const bool whole = args.head_size / 2 % kUnit == 0;
    const int64_t jobs = args.sequence * (args.head_size / 2 / (whole ? kUnit : 1));
    if (jobs / kThreads >= kMostBlocks) return kTooManyBlocks;
    LaunchShape shape = Blocks((jobs + kThreads - 1) / kThreads, kThreads);
    const int64_t rows = args.batch * args.heads;
    const int64_t wanted = kBlocksThatFill / (shape.grid.x == 0 ? 1 : shape.grid.x) + 1;
    shape.grid.y = static_cast<unsigned>(rows < wanted ? rows : wanted);
    return whole ? Launch(stream, shape, RotaryKernel<T, kUnit>, args)
                 : Launch(stream, shape, RotaryKernel<T, 1>, args);
  });
}

Code launches::Segments(const SegmentsArgs& args, StreamHandle stream) {
  if (args.rows > kMostBlocks) return kTooManyBlocks;
  return Launch(stream, Blocks(args.rows, kWarp), SegmentsKernel, args);
}

}  // namespace meshwright::ops::cuda
