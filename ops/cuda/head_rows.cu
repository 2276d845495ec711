// The rows of a head: a block of threads per row. The row is read twice: once for its largest logit
// and the sum of exponentials, which are kept together so that one pass is enough, and once to
// become the gradient. Places inside of a row are int32, as labels are.
#include "ops/cuda/head_rows.h"

#include <cmath>
#include <memory>

#include "ops/cuda/language.cuh"

namespace meshwright::ops::cuda {

namespace {

constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / kWarp;
constexpr int kSumThreads = 1024;
constexpr int kQuad = 4;   // logits of 16 bytes
constexpr int kAhead = 4;  // quads that a thread has asked for before it looks at the first
constexpr int kBatchQuads = kRowThreads * kAhead;
constexpr float kNothing = -INFINITY;

// sum of exp(x - largest) over some x: what two of them make together does not overflow. The
// largest is never NaN: a NaN among the x is in the sum, and stays there.
struct ExpSum {
  float largest;
  float sum;
};

// What exponents are relative to. Not -inf, since -inf - -inf is NaN.
__device__ inline float BaseOf(float largest) { return largest == kNothing ? 0.0f : largest; }

__device__ inline ExpSum Join(const ExpSum& x, const ExpSum& y) {
  const float largest = x.largest > y.largest ? x.largest : y.largest;
  const float base = BaseOf(largest);
  return {largest,
          x.sum * ExpOfDifference(x.largest, base) + y.sum * ExpOfDifference(y.largest, base)};
}

__device__ inline ExpSum WarpJoin(ExpSum value) {
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    const ExpSum other = {__shfl_xor_sync(kAllLanes, value.largest, bits),
                          __shfl_xor_sync(kAllLanes, value.sum, bits)};
    // Both lanes add in one order, so that all get the same bits.
    value =
        (threadIdx.x & static_cast<unsigned>(bits)) == 0 ? Join(value, other) : Join(other, value);
  }
  return value;
}

__device__ inline ExpSum BlockJoin(ExpSum value, ExpSum* part) {
  value = WarpJoin(value);
  if (threadIdx.x % kWarp == 0) part[threadIdx.x / kWarp] = value;
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarp;
  return WarpJoin(lane < kRowWarps ? part[lane] : ExpSum{kNothing, 0.0f});
}

template <int N>
__device__ inline void Add(ExpSum& to, const float (&x)[N]) {
  float largest = to.largest;
#pragma unroll
  for (int i = 0; i < N; ++i) largest = x[i] > largest ? x[i] : largest;
  const float base = BaseOf(largest);
  to.sum *= ExpOfDifference(to.largest, base);
  to.largest = largest;
#pragma unroll
  for (int i = 0; i < N; ++i) to.sum += ExpOfDifference(x[i], base);
}

// A thread's quads of the batch that starts at quad `first`; -inf behind the last one.
__device__ inline void LoadBatch(const float* row, int quads, int first,
                                 float (&x)[kAhead * kQuad]) {
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int quad = first + k * kRowThreads + static_cast<int>(threadIdx.x);
    float values[kQuad] = {kNothing, kNothing, kNothing, kNothing};
    if (quad < quads) LoadUnit(row + quad * kQuad, values);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) x[k * kQuad + i] = values[i];
  }
}

// Of a row of whole quads and at most three more logits.
__device__ inline ExpSum ThreadSum(const float* row, int columns) {
  const int quads = columns / kQuad;
  ExpSum sum = {kNothing, 0.0f};
  for (int first = 0; first < quads; first += kBatchQuads) {
    float x[kAhead * kQuad];
    LoadBatch(row, quads, first, x);
    Add(sum, x);
  }
  const int last = quads * kQuad + static_cast<int>(threadIdx.x);
  if (last < columns) {
    const float x[1] = {row[last]};
    Add(sum, x);
  }
  return sum;
}

// The gradient of logits of one row.
struct GradientOf {
  float lse;
  float dloss;
  int label;  // negative: ignored

  __device__ float operator()(float x, int column) const {
    const float share = ExpOfDifference(x, lse) - (column == label ? 1.0f : 0.0f);
    return label < 0 ? 0.0f : dloss * share;
  }
};

// A 16-bit gradient is shorter than the logits it replaces: what a batch writes lies before the end
// of what it has read, so that one barrier per batch is enough.
template <typename T>
__device__ inline void WriteGradient(float* row, int columns, const GradientOf& gradient_of) {
  constexpr bool kMoves = sizeof(T) != sizeof(float);
  T* const gradient = reinterpret_cast<T*>(row);
  const int quads = columns / kQuad;
  for (int first = 0; first < quads; first += kBatchQuads) {
    float x[kAhead * kQuad];
    LoadBatch(row, quads, first, x);
    if constexpr (kMoves) __syncthreads();
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int quad = first + k * kRowThreads + static_cast<int>(threadIdx.x);
      if (quad >= quads) continue;
      float values[kQuad];
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        values[i] = gradient_of(x[k * kQuad + i], quad * kQuad + i);
      }
      StoreUnit(gradient + quad * kQuad, values);
    }
  }
  const int last = quads * kQuad + static_cast<int>(threadIdx.x);
  const float x = last < columns ? row[last] : 0.0f;
  if constexpr (kMoves) __syncthreads();
  if (last < columns) gradient[last] = FromFloat<T>(gradient_of(x, last));
}

// The label; -1: ignored, or outside of the row.
__device__ inline int32_t CheckedLabel(const HeadBlockRows& block, int64_t r, int32_t label) {
  if (label == block.ignored) return -1;
  if (label >= 0 && label < block.columns) return label;
  if (threadIdx.x == 0 && atomicCAS(&block.fault->found, 0, 1 + block.op) == 0) {
    block.fault->id = label;
    block.fault->position = block.first_position + r;
    block.fault->table_rows = block.columns;
  }
  return -1;
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) HeadRow(HeadBlockRows block) {
  __shared__ ExpSum part[kRowWarps];
  const int64_t r = blockIdx.x;
  float* const row = static_cast<float*>(block.logits) + r * block.pitch;
  const int columns = static_cast<int>(block.columns);
  const int32_t given = block.labels[r];  // on its way while the row is read
  const ExpSum mine = ThreadSum(row, columns);
  const int32_t label = CheckedLabel(block, r, given);
  const float at_label = label < 0 ? 0.0f : row[label];  // before other threads write
  const ExpSum sum = BlockJoin(mine, part);
  const float lse = sum.largest + logf(sum.sum);
  if (threadIdx.x == 0) block.losses[r] = label < 0 ? 0.0f : lse - at_label;
  if (block.dloss != nullptr) WriteGradient<T>(row, columns, {lse, *block.dloss, label});
}

// Sums of a thread's rows, then of the threads, always in the same order.
__global__ void __launch_bounds__(kSumThreads)
    AddUpRows(const float* losses, const int32_t* labels, int64_t rows, int64_t ignored,
              float* loss, float* count) {
  __shared__ double sums[kSumThreads];
  __shared__ int64_t counts[kSumThreads];
  double sum = 0;
  int64_t counted = 0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < rows; r += kSumThreads) {
    sum += static_cast<double>(losses[r]);
    if (labels[r] != ignored) ++counted;
  }
  sums[threadIdx.x] = sum;
  counts[threadIdx.x] = counted;
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      counts[threadIdx.x] += counts[threadIdx.x + half];
    }
  }
  if (threadIdx.x != 0) return;
  *loss = static_cast<float>(sums[0]);
  *count = static_cast<float>(counts[0]);
}

template <typename T>
Code RunRows(const HeadBlockRows& block, StreamHandle stream) {
  if (block.rows > kMostBlocks || block.columns > kMostBlocks) return kTooManyBlocks;
  return Launch(stream, Blocks(block.rows, kRowThreads), HeadRow<T>, block);
}

class OwnHeadRows final : public HeadRows {
 public:
  Code RunBlock(const HeadBlockRows& block, StreamHandle stream) override {
    switch (block.gradient) {
      case ir::DType::kBF16:
        return RunRows<Bf16>(block, stream);
      case ir::DType::kF16:
        return RunRows<F16>(block, stream);
      default:
        return RunRows<float>(block, stream);
    }
  }

  Code AddUp(const float* losses, const int32_t* labels, int64_t rows, int64_t ignored, float* loss,
             float* count, StreamHandle stream) override {
    return Launch(stream, Blocks(1, kSumThreads), AddUpRows, losses, labels, rows, ignored, loss,
                  count);
  }
};

}  // namespace

std::unique_ptr<HeadRows> MakeHeadRows() { return std::make_unique<OwnHeadRows>(); }

}  // namespace meshwright::ops::cuda
