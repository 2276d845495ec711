// adafactor: means of rows, means of columns, the sums that scale a step, then the step. Each sum
// is made by one block in a fixed order.
#include "ops/cuda/language.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileColumns = 32;
constexpr int kTileRows = 8;
constexpr float kLeastSquare = 1e-30f;
constexpr float kLeastScale = 1e-3f;

// What lies in scratch.
struct Parts {
  float* param;   // sums of squares, per row
  float* update;  // the same
  float* means;   // of the rows of a matrix
  float* keep;    // of the step: what is kept of p, and what is taken of the update
  float* share;

  __device__ explicit Parts(const AdafactorArgs& args)
      : param(args.scratch),
        update(param + args.matrices * args.row_count),
        means(update + args.matrices * args.row_count),
        keep(means + args.matrices),
        share(keep + 1) {}
};

__device__ bool Stays(const AdafactorArgs& args) { return args.skips && *args.multiplier == 0; }

__device__ float Decay(const AdafactorArgs& args) {
  return 1.0f -
         powf(static_cast<float>(args.state->step + 1), -static_cast<float>(args.decay_rate));
}

__device__ float Renewed(float decay, float old, float mean) {
  return decay * old + (1.0f - decay) * mean;
}

template <typename T>
__device__ float ScaledAt(const AdafactorArgs& args, int64_t at) {
  return ToFloat(static_cast<const T*>(args.g)[at]) * *args.multiplier;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) RowsKernel(const AdafactorArgs args) {
  __shared__ float part[kWarp];
  const bool stays = Stays(args);
  const float decay = Decay(args);
  const int64_t all = args.matrices * args.row_count;
  for (int64_t row = blockIdx.x; row < all; row += gridDim.x) {
    float squares = 0;
    float param = 0;
    for (int64_t c = threadIdx.x; c < args.column_count; c += blockDim.x) {
      const int64_t at = row * args.column_count + c;
      const float g = ScaledAt<T>(args, at);
      const float p = ToFloat(static_cast<const T*>(args.p)[at]);
      squares += g * g + kLeastSquare;
      param += p * p;
    }
    squares = BlockSum(squares, part);
    param = BlockSum(param, part);
    if (threadIdx.x != 0) continue;
    const float mean = squares / static_cast<float>(args.column_count);
    args.rows_to[row] = stays ? args.rows[row] : Renewed(decay, args.rows[row], mean);
    Parts(args).param[row] = param;
  }
}

// Blocks of kTileColumns x kTileRows threads.
template <typename T>
__global__ void __launch_bounds__(kTileColumns* kTileRows) ColumnsKernel(const AdafactorArgs args) {
  __shared__ float part[kTileRows][kTileColumns];
  const bool stays = Stays(args);
  const float decay = Decay(args);
  const int64_t tiles = (args.column_count + kTileColumns - 1) / kTileColumns;
  for (int64_t tile = blockIdx.x; tile < args.matrices * tiles; tile += gridDim.x) {
    const int64_t matrix = tile / tiles;
    const int64_t c = tile % tiles * kTileColumns + threadIdx.x;
    float squares = 0;
    for (int64_t r = threadIdx.y; c < args.column_count && r < args.row_count; r += kTileRows) {
      const float g = ScaledAt<T>(args, (matrix * args.row_count + r) * args.column_count + c);
      squares += g * g + kLeastSquare;
    }
    part[threadIdx.y][threadIdx.x] = squares;
    __syncthreads();
    if (threadIdx.y == 0 && c < args.column_count) {
      float sum = 0;
      for (int y = 0; y < kTileRows; ++y) sum += part[y][threadIdx.x];
      const int64_t at = matrix * args.column_count + c;
      const float mean = sum / static_cast<float>(args.row_count);
      args.columns_to[at] = stays ? args.columns[at] : Renewed(decay, args.columns[at], mean);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) MeansKernel(const AdafactorArgs args) {
  __shared__ float part[kWarp];
  for (int64_t matrix = blockIdx.x; matrix < args.matrices; matrix += gridDim.x) {
    float sum = 0;
    for (int64_t r = threadIdx.x; r < args.row_count; r += blockDim.x) {
      sum += args.rows_to[matrix * args.row_count + r];
    }
    sum = BlockSum(sum, part);
    if (threadIdx.x == 0) Parts(args).means[matrix] = sum / static_cast<float>(args.row_count);
  }
}

__device__ float RowFactor(const AdafactorArgs& args, int64_t row) {
  const float mean = Parts(args).means[row / args.row_count];
  return *args.multiplier / sqrtf(args.rows_to[row] / mean);
}

template <typename T>
__device__ float UpdateAt(const AdafactorArgs& args, float factor, int64_t row, int64_t c) {
  const float column = args.columns_to[row / args.row_count * args.column_count + c];
  const float g = ToFloat(static_cast<const T*>(args.g)[row * args.column_count + c]);
  return g * factor / sqrtf(column);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) SumsKernel(const AdafactorArgs args) {
  __shared__ float part[kWarp];
  const int64_t all = args.matrices * args.row_count;
  for (int64_t row = blockIdx.x; row < all; row += gridDim.x) {
    const float factor = RowFactor(args, row);
    float squares = 0;
    for (int64_t c = threadIdx.x; c < args.column_count; c += blockDim.x) {
      const float update = UpdateAt<T>(args, factor, row, c);
      squares += update * update;
    }
    squares = BlockSum(squares, part);
    if (threadIdx.x == 0) Parts(args).update[row] = squares;
  }
}

// One block. NaNs come through, so that divergence is seen.
__global__ void __launch_bounds__(kThreads) ScalarsKernel(const AdafactorArgs args) {
  __shared__ float part[kWarp];
  const Parts parts(args);
  const int64_t all = args.matrices * args.row_count;
  float param = 0;
  float update = 0;
  for (int64_t row = threadIdx.x; row < all; row += blockDim.x) {
    param += parts.param[row];
    update += parts.update[row];
  }
  param = BlockSum(param, part);
  update = BlockSum(update, part);
  if (threadIdx.x != 0) return;
  const float elements = static_cast<float>(all * args.column_count);
  const float scale = args.scales ? Larger(kLeastScale, sqrtf(param / elements)) : 1.0f;
  const float rate = *args.lr * scale;
  const float root = sqrtf(update / elements) / static_cast<float>(args.clip_threshold);
  *parts.keep = 1.0f - static_cast<float>(args.weight_decay) * rate;
  *parts.share = rate / Larger(1.0f, root);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) StepKernel(const AdafactorArgs args) {
  const Parts parts(args);
  const bool stays = Stays(args);
  const float keep = *parts.keep;
  const float share = *parts.share;
  const int64_t all = args.matrices * args.row_count;
  for (int64_t row = blockIdx.x; row < all; row += gridDim.x) {
    const float factor = RowFactor(args, row);
    for (int64_t c = threadIdx.x; c < args.column_count; c += blockDim.x) {
      const int64_t at = row * args.column_count + c;
      const float p = ToFloat(static_cast<const T*>(args.p)[at]);
      const float renewed = stays ? p : keep * p - share * UpdateAt<T>(args, factor, row, c);
      static_cast<T*>(args.p_to)[at] = FromFloat<T>(renewed);
    }
  }
}

// Calls launch until one fails.
template <typename... Launches>
Code InTurn(const Launches&... launches) {
  Code code = 0;
  (void)(... && ((code = launches()) == 0));
  return code;
}

}  // namespace

Code launches::Adafactor(const AdafactorArgs& args, StreamHandle stream) {
  const int64_t all = args.matrices * args.row_count;
  const int64_t tiles = args.matrices * ((args.column_count + kTileColumns - 1) / kTileColumns);
  const LaunchShape rows = Blocks(BlocksFor(all, 1), kThreads);
  LaunchShape columns = Blocks(BlocksFor(tiles, 1), kTileColumns);
  columns.block.y = kTileRows;
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    return InTurn([&] { return Launch(stream, rows, RowsKernel<T>, args); },
                  [&] { return Launch(stream, columns, ColumnsKernel<T>, args); },
                  [&] {
                    return Launch(stream, Blocks(BlocksFor(args.matrices, 1), kThreads),
                                  MeansKernel, args);
                  },
                  [&] { return Launch(stream, rows, SumsKernel<T>, args); },
                  [&] { return Launch(stream, Blocks(1, kThreads), ScalarsKernel, args); },
                  [&] { return Launch(stream, rows, StepKernel<T>, args); });
  });
}

}  // namespace meshwright::ops::cuda
