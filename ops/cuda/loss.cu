// logsumexp, cross_entropy, its gradient, pick, nll.
//
// A block reads its row once: every thread keeps the largest logit so far and the sum of exp(x -
// largest), which are combined at the end. Rows of odd widths start anywhere: their units lie
// between the multiples of 16 bytes inside of them, with single elements before and after. Places
// inside of a row are int32, as labels are.
#include "ops/cuda/fault.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kRowThreads = 512;
constexpr int64_t kNllThreads = 1024;

// How a thread takes rows: so many units are asked for before the first is looked at.
template <typename T>
struct RowForm {
  static constexpr int kUnit = UnitOf<T>();
  static constexpr int kAhead = 16 / kUnit;
};

// Elements before the first unit of a row, and units. Fewer than a unit's are left.
struct RowCut {
  int head;
  int units;
};
template <typename T>
__device__ inline RowCut CutOf(const T* row, int width) {
  constexpr int N = RowForm<T>::kUnit;
  const int over = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % N);
  const int before = over == 0 ? 0 : N - over;
  const int head = before < width ? before : width;
  return {head, (width - head) / N};
}

__device__ inline float MinusInfinity() { return -__uint_as_float(0x7f800000u); }

// A unit of -inf.
template <typename T>
__device__ inline uint4 NothingOf() {
  const unsigned word = std::is_same_v<T, float>  ? 0xff800000u
                        : std::is_same_v<T, Bf16> ? 0xff80ff80u
                                                  : 0xfc00fc00u;
  return make_uint4(word, word, word, word);
}

// sum is relative to exp(largest). Nothing seen: -inf and 0.
struct Softmax {
  float largest;
  float sum;
};

__device__ inline Softmax Combine(Softmax x, Softmax y) {
  const float largest = Larger(x.largest, y.largest);
  if (isinf(largest)) return {largest, 0.0f};
  return {largest, x.sum * expf(x.largest - largest) + y.sum * expf(y.largest - largest)};
}

__device__ inline Softmax WarpCombine(Softmax value) {
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    const Softmax other{__shfl_xor_sync(kAllLanes, value.largest, bits),
                        __shfl_xor_sync(kAllLanes, value.sum, bits)};
    value = Combine(value, other);
  }
  return value;
}

template <int N>
__device__ inline void Add(Softmax& to, const float (&x)[N]) {
  float largest = to.largest;
#pragma unroll
  for (int i = 0; i < N; ++i) largest = Larger(largest, x[i]);
  if (largest == MinusInfinity()) return;
  to.sum *= to.largest == largest ? 1.0f : ExpOfDifference(to.largest, largest);
  to.largest = largest;
#pragma unroll
  for (int i = 0; i < N; ++i) to.sum += ExpOfDifference(x[i], largest);
}

// What a thread has of a row.
template <typename T>
__device__ inline Softmax ThreadSoftmax(const T* x, int width) {
  constexpr int N = RowForm<T>::kUnit;
  constexpr int kAhead = RowForm<T>::kAhead;
  const RowCut cut = CutOf(x, width);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  Softmax mine{MinusInfinity(), 0.0f};
  for (int first = thread; first < cut.units; first += threads * kAhead) {
    // As they are in memory: what turns them into numbers would wait for each before the next.
    uint4 words[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int unit = first + k * threads;
      words[k] = NothingOf<T>();
      if (unit < cut.units) words[k] = *reinterpret_cast<const uint4*>(x + cut.head + unit * N);
    }
    float values[kAhead * N];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      float unit[N];
      LoadUnit<T, N>(reinterpret_cast<const T*>(&words[k]), unit);
#pragma unroll
      for (int i = 0; i < N; ++i) values[k * N + i] = unit[i];
    }
    Add(mine, values);
  }
  const int last = cut.head + cut.units * N + thread;
  const float ends[2] = {thread < cut.head ? ToFloat(x[thread]) : MinusInfinity(),
                         last < width ? ToFloat(x[last]) : MinusInfinity()};
  Add(mine, ends);
  return mine;
}

// lse of a row; all threads of the block get it.
template <typename T>
__device__ float RowLogSumExp(const T* x, int width) {
  __shared__ Softmax parts[kWarp];
  Softmax mine = WarpCombine(ThreadSoftmax(x, width));
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  mine = lane < blockDim.x / kWarp ? parts[lane] : Softmax{MinusInfinity(), 0.0f};
  mine = WarpCombine(mine);
  return isinf(mine.largest) ? mine.largest : mine.largest + logf(mine.sum);
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) LogSumExpKernel(LogSumExpArgs args) {
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.width;
  const float lse = RowLogSumExp(x, static_cast<int>(args.width));
  if (threadIdx.x != 0) return;
  args.lse[row] = lse;
  if (args.labels == nullptr) return;
  const int32_t label = args.labels[row];
  const bool counts = label != args.ignore && IsTokenId(args.fault, label, row);
  args.picked[row] = counts ? ToFloat(x[label]) : 0.0f;
}

// The gradient of logits of one row.
struct GradientOf {
  float lse;
  float dloss;
  int column;  // of the label; negative: elsewhere
  int valid;   // columns that are no padding

  // Of the logits from column `at` on, in their place.
  template <int N>
  __device__ void operator()(float (&x)[N], int at) const {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = ExpOfDifference(x[i], lse);
    if (column >= at && column < at + N) {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] -= at + i == column ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] *= dloss;
    if (at + N <= valid) return;
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = at + i < valid ? x[i] : 0.0f;
  }
};

__device__ inline GradientOf GradientOfRow(const CrossEntropyGradArgs& args, int64_t row) {
  const int32_t label = args.labels[row];
  const int64_t column = label - args.first_column;
  const int64_t valid = args.valid_columns < args.width ? args.valid_columns : args.width;
  return {args.lse[row], *args.dloss,
          static_cast<int>(column >= 0 && column < args.width ? column : -1),
          static_cast<int>(label == args.ignore ? 0 : valid)};
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) CrossEntropyGradKernel(CrossEntropyGradArgs args) {
  constexpr int N = RowForm<T>::kUnit;
  constexpr int kAhead = RowForm<T>::kAhead;
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.logits) + row * args.width;
  T* to = static_cast<T*>(args.to) + row * args.width;
  const int width = static_cast<int>(args.width);
  const GradientOf gradient_of = GradientOfRow(args, row);
  const RowCut cut = CutOf(x, width);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  for (int first = thread; first < cut.units; first += threads * kAhead) {
    float values[kAhead][N];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int unit = first + k * threads;
      if (unit < cut.units) LoadUnit<T, N>(x + cut.head + unit * N, values[k]);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int at = cut.head + (first + k * threads) * N;
      if (first + k * threads >= cut.units) continue;
      gradient_of(values[k], at);
      StoreUnit<T, N>(to + at, values[k]);
    }
  }
  const auto single = [&](int at) {
    float value[1] = {ToFloat(x[at])};
    gradient_of(value, at);
    to[at] = FromFloat<T>(value[0]);
  };
  const int last = cut.head + cut.units * N + thread;
  if (thread < cut.head) single(thread);
  if (last < width) single(last);
}

__global__ void __launch_bounds__(kThreads) PickKernel(PickArgs args) {
  const int64_t row = GlobalThread();
  if (row >= args.rows) return;
  const int32_t label = args.labels[row];
  const int64_t column = label - args.first_column;
  const bool counts = label != args.ignore && IsTokenId(args.fault, label, row);
  const bool here = counts && column >= 0 && column < args.width;
  args.to[row] = here ? LoadAny(args.logits, args.type, row * args.width + column) : 0.0f;
}

__device__ double BlockSumWide(double value, double* part) {
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  const unsigned lane = threadIdx.x % kWarp;
  __syncthreads();
  if (lane == 0) part[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarp ? part[lane] : 0.0;
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}

// One block: there is one number per row.
__global__ void __launch_bounds__(kNllThreads) NllKernel(NllArgs args) {
  __shared__ double part[kWarp];
  double loss = 0;
  double count = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < args.rows; row += blockDim.x) {
    const bool counts = args.labels[row] != args.ignore;
    const double nll = static_cast<double>(LoadAny(args.lse, args.type, row)) -
                       static_cast<double>(LoadAny(args.picked, args.type, row));
    loss += counts ? nll : 0.0;
    count += counts ? 1.0 : 0.0;
  }
  loss = BlockSumWide(loss, part);
  count = BlockSumWide(count, part);
  if (threadIdx.x != 0) return;
  StoreAny(args.loss, args.result, 0, static_cast<float>(loss));
  StoreAny(args.count, args.result, 0, static_cast<float>(count));
}

// Threads for `items`: whole warps, no more than there is to do.
int64_t ThreadsFor(int64_t items, int64_t most) {
  const int64_t threads = (items + kWarp - 1) / kWarp * kWarp;
  return threads < most ? threads : most;
}

// A block per row.
template <typename T, typename Args>
Code LaunchRows(const Args& args, void (*kernel)(Args), StreamHandle stream) {
  constexpr int kUnit = UnitOf<T>();
  if (args.rows > kMostBlocks || args.width > kMostBlocks) return kTooManyBlocks;
  const int64_t threads = ThreadsFor((args.width + kUnit - 1) / kUnit, kRowThreads);
  return Launch(stream, Blocks(args.rows, threads), kernel, args);
}

}  // namespace

Code launches::LogSumExp(const LogSumExpArgs& args, StreamHandle stream) {
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    return LaunchRows<T>(args, LogSumExpKernel<T>, stream);
  });
}

Code launches::CrossEntropyGrad(const CrossEntropyGradArgs& args, StreamHandle stream) {
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    return LaunchRows<T>(args, CrossEntropyGradKernel<T>, stream);
  });
}

Code launches::Pick(const PickArgs& args, StreamHandle stream) {
  const int64_t blocks = (args.rows + kThreads - 1) / kThreads;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return Launch(stream, Blocks(blocks, kThreads), PickKernel, args);
}

Code launches::Nll(const NllArgs& args, StreamHandle stream) {
  return Launch(stream, Blocks(1, ThreadsFor(args.rows, kNllThreads)), NllKernel, args);
}

}  // namespace meshwright::ops::cuda
