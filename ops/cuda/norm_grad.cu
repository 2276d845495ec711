// layer_norm_grad and rms_norm_grad.
//
// With hat = (x - mean) * rstd and g = dy * w: dx = (g - avg(g) - hat * avg(g * hat)) * rstd, where
// rms_norm has no mean and no avg(g); dw and db are sums over rows. A block takes every n-th row
// and keeps its part of dw and db, which a second kernel adds up in a fixed order.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/rows.cuh"

namespace meshwright::ops::cuda {
namespace {

// Threads of a grid of which no block waits for another to end: each multiprocessor holds 1024 of a
// kernel whose bounds allow blocks of that size.
constexpr int64_t kResidentThreads = 132 * kMaxBlockThreads;
// Of a block with several rows: blocks wait for their own rows only, so they are small, but each
// makes a part of dw and db.
constexpr int64_t kSharingThreads = 256;
// Where a row is for a block of 1024 threads although they cannot hold it.
constexpr int64_t kLongRow = 4096;
constexpr int kSumRows = 32;  // of the second kernel's blocks

struct alignas(8) Pair {
  float x;
  float y;
};

__device__ inline Pair WarpSum(Pair value) {
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    value.x += __shfl_xor_sync(kAllLanes, value.x, bits);
    value.y += __shfl_xor_sync(kAllLanes, value.y, bits);
  }
  return value;
}

// Both sums over the threads of a row, for all of them; all rows of a block call it together.
// `part` is shared memory, another one than in the call before: one barrier is then enough, since
// those who read the other one have to come to this barrier, too.
__device__ inline Pair RowSums(Pair value, Pair (&part)[kWarp]) {
  constexpr unsigned kFew = 8;
  value = WarpSum(value);
  if (blockDim.x == kWarp) return value;
  const unsigned warps = blockDim.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned first = threadIdx.y * warps;
  if (lane == 0) part[first + threadIdx.x / kWarp] = value;
  __syncthreads();
  if (warps > kFew) return WarpSum(lane < warps ? part[first + lane] : Pair{0.0f, 0.0f});
  value = {0.0f, 0.0f};
#pragma unroll
  for (unsigned warp = 0; warp < kFew; ++warp) {
    const Pair other = warp < warps ? part[first + warp] : Pair{0.0f, 0.0f};
    value.x += other.x;
    value.y += other.y;
  }
  return value;
}

// Adds the parts of a block's rows (threadIdx.y) and stores them as the block's part.
template <int N>
__device__ void StorePart(const float (&sums)[N], float* to, int width) {
  MW_DYNAMIC_SHARED(float, rows);
  const int at = static_cast<int>(threadIdx.x) * N;
  float* const mine = blockDim.y == 1 ? to : rows + threadIdx.y * width;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float quad[4] = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
    if (at < width) StoreUnit<float, 4>(mine + at + i, quad);
  }
  if (blockDim.y == 1) return;
  __syncthreads();
  for (int j = threadIdx.y * blockDim.x + threadIdx.x; j < width; j += blockDim.x * blockDim.y) {
    float sum = 0;
    for (unsigned y = 0; y < blockDim.y; ++y) sum += rows[y * width + j];
    to[j] = sum;
  }
  __syncthreads();
}

// What a thread has of a row: 16 bytes of x and of dy as they are in memory, which take fewer
// registers than the numbers. Zeros where there is nothing.
struct RowWords {
  uint4 x;
  uint4 dy;
  float mean;
  float rstd;
};

template <typename T>
__device__ inline uint4 WordsAt(const void* data, int64_t at) {
  return *reinterpret_cast<const uint4*>(static_cast<const T*>(data) + at);
}

template <typename T, bool kMean>
__device__ inline RowWords LoadRow(const NormGradArgs& args, int64_t row, int at) {
  const uint4 none = make_uint4(0, 0, 0, 0);
  RowWords words = {none, none, 0.0f, 0.0f};
  if (row >= args.rows) return words;
  if (at < args.width) {
    words.x = WordsAt<T>(args.x, row * args.width + at);
    words.dy = WordsAt<T>(args.dy, row * args.width + at);
  }
  if constexpr (kMean) words.mean = args.mean[row];
  words.rstd = args.rstd[row];
  return words;
}

template <typename T, int N>
__device__ inline void Unpack(const uint4& words, float (&values)[N]) {
  LoadUnit<T, N>(reinterpret_cast<const T*>(&words), values);
}

// Rows of which a thread has one unit. The next row is on its way while this one is worked on.
template <typename T, bool kMean>
__global__ void __launch_bounds__(kMaxBlockThreads) NormGradKernel(NormGradArgs args) {
  constexpr int N = UnitOf<T>();
  __shared__ Pair part[2][kWarp];
  float dw[N] = {};
  float db[N] = {};
  const int at = static_cast<int>(threadIdx.x) * N;
  const float share = 1.0f / static_cast<float>(args.width);
  uint4 w_words = make_uint4(0, 0, 0, 0);
  if (at < args.width) w_words = WordsAt<T>(args.w, at);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.y;
  RowWords next = LoadRow<T, kMean>(args, first + threadIdx.y, at);
  for (int turn = 0; first < args.rows; first += step, turn ^= 1) {
    const RowWords row = next;
    next = LoadRow<T, kMean>(args, first + step + threadIdx.y, at);
    float x[N];
    float dy[N];
    float w[N];
    Unpack<T, N>(row.x, x);
    Unpack<T, N>(row.dy, dy);
    Unpack<T, N>(w_words, w);
    Pair sums = {0.0f, 0.0f};  // of g and of g * hat
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float hat = (x[i] - row.mean) * row.rstd;
      const float g = dy[i] * w[i];
      dw[i] += dy[i] * hat;
      if constexpr (kMean) db[i] += dy[i];
      sums.x += g;
      sums.y += g * hat;
    }
    sums = RowSums(sums, part[turn]);
    const float average = kMean ? sums.x * share : 0.0f;
    const float average_hat = sums.y * share;
    if (first + threadIdx.y >= args.rows || at >= args.width) continue;
    Unpack<T, N>(row.x, x);
    Unpack<T, N>(row.dy, dy);
    Unpack<T, N>(w_words, w);
    float dx[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float hat = (x[i] - row.mean) * row.rstd;
      dx[i] = (dy[i] * w[i] - average - hat * average_hat) * row.rstd;
    }
    StoreUnit<T, N>(static_cast<T*>(args.dx) + (first + threadIdx.y) * args.width + at, dx);
  }
  const int width = static_cast<int>(args.width);
  StorePart<N>(dw, args.scratch + blockIdx.x * args.width, width);
  if constexpr (kMean) {
    StorePart<N>(db, args.scratch + (gridDim.x + blockIdx.x) * args.width, width);
  }
}

// Rows of any width: a block per row at a time, parts of dw and db in memory.
template <typename T>
__global__ void __launch_bounds__(kMaxBlockThreads) WideNormGradKernel(NormGradArgs args) {
  __shared__ Pair part[2][kWarp];
  float* dw = args.scratch + blockIdx.x * args.width;
  float* db = args.scratch + (gridDim.x + blockIdx.x) * args.width;
  const float share = 1.0f / static_cast<float>(args.width);
  bool first = true;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x, turn ^= 1) {
    const T* xs = static_cast<const T*>(args.x) + row * args.width;
    const T* dys = static_cast<const T*>(args.dy) + row * args.width;
    const T* w = static_cast<const T*>(args.w);
    const float mean = args.mean != nullptr ? args.mean[row] : 0.0f;
    const float rstd = args.rstd[row];
    Pair sums = {0.0f, 0.0f};
    for (int64_t j = threadIdx.x; j < args.width; j += blockDim.x) {
      const float hat = (ToFloat(xs[j]) - mean) * rstd;
      const float dy = ToFloat(dys[j]);
      dw[j] = (first ? 0.0f : dw[j]) + dy * hat;
      if (args.db != nullptr) db[j] = (first ? 0.0f : db[j]) + dy;
      sums.x += dy * ToFloat(w[j]);
      sums.y += dy * ToFloat(w[j]) * hat;
    }
    first = false;
    sums = RowSums(sums, part[turn]);
    const float average = args.mean != nullptr ? sums.x * share : 0.0f;
    const float average_hat = sums.y * share;
    T* dx = static_cast<T*>(args.dx) + row * args.width;
    for (int64_t j = threadIdx.x; j < args.width; j += blockDim.x) {
      const float hat = (ToFloat(xs[j]) - mean) * rstd;
      const float g = ToFloat(dys[j]) * ToFloat(w[j]);
      dx[j] = FromFloat<T>((g - average - hat * average_hat) * rstd);
    }
  }
}

// dw, and with blockIdx.y 1 db: column sums of their parts [count, width].
template <typename T>
__global__ void __launch_bounds__(kWarp* kSumRows)
    SumPartsKernel(const float* parts, int count, int64_t width, T* dw, T* db) {
  __shared__ float sums[kSumRows][kWarp];
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const float* const from = parts + blockIdx.y * count * width + j;
  float sum = 0;
  if (j < width) {
#pragma unroll 8
    for (int i = threadIdx.y; i < count; i += kSumRows) sum += from[i * width];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= width) return;
#pragma unroll
  for (int y = 1; y < kSumRows; ++y) sum += sums[y][threadIdx.x];
  (blockIdx.y == 0 ? dw : db)[j] = FromFloat<T>(sum);
}

// Rows as blocks take them; .block.x 0: threads cannot hold a row of this width.
template <typename T>
dim3 HoldingBlock(int64_t width) {
  constexpr int kUnit = UnitOf<T>();
  const int64_t lanes = width % kUnit == 0 ? RowLanes(width / kUnit, 1) : 0;
  const int64_t rows = lanes == 0 || lanes >= kSharingThreads ? 1 : kSharingThreads / lanes;
  return dim3{static_cast<unsigned>(lanes), static_cast<unsigned>(rows), 1};
}

template <typename T>
Code LaunchRows(const NormGradArgs& args, const LaunchShape& shape, StreamHandle stream) {
  return args.mean != nullptr ? Launch(stream, shape, NormGradKernel<T, true>, args)
                              : Launch(stream, shape, NormGradKernel<T, false>, args);
}

template <typename T>
Code LaunchNormGrad(const NormGradArgs& args, StreamHandle stream) {
  const int64_t columns = (args.width + kWarp - 1) / kWarp;
  if (columns > kMostBlocks) return kTooManyBlocks;
  LaunchShape shape{{}, HoldingBlock<T>(args.width), 0};
  int64_t most = NormGradParts(args.rows, args.width);
  const bool holds = shape.block.x != 0;
  if (holds) {
    const int64_t resident = kResidentThreads / (shape.block.x * shape.block.y);
    if (most > resident) most = resident;
  } else {
    const int64_t lanes = args.width >= kLongRow ? kMaxBlockThreads : LoopLanes(args.width);
    shape.block = dim3{static_cast<unsigned>(lanes), 1, 1};
  }
  const int64_t parts = BlocksFor(args.rows, shape.block.y, most);
  shape.grid.x = static_cast<unsigned>(parts);
  if (shape.block.y > 1) shape.shared_bytes = shape.block.y * args.width * 4;
  const Code code = holds ? LaunchRows<T>(args, shape, stream)
                          : Launch(stream, shape, WideNormGradKernel<T>, args);
  if (code != 0) return code;
  const LaunchShape sums{dim3{static_cast<unsigned>(columns), args.db != nullptr ? 2u : 1u, 1},
                         dim3{kWarp, kSumRows, 1}, 0};
  return Launch(stream, sums, SumPartsKernel<T>, args.scratch, static_cast<int>(parts), args.width,
                static_cast<T*>(args.dw), static_cast<T*>(args.db));
}

}  // namespace

Code launches::NormGrad(const NormGradArgs& args, StreamHandle stream) {
  return ForType(args.type,
                 [&](auto element) { return LaunchNormGrad<decltype(element)>(args, stream); });
}

}  // namespace meshwright::ops::cuda
