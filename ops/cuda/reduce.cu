// reduce_sum and reduce_max over any dims, sum_squares. Long sums are cut into parts, which a
// second kernel adds up in a fixed order.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/rows.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnRows = 8;  // threads that share a column
constexpr int kSplitRows = 32;  // the same where parts are added up

// Place of element `index` of dims with these strides.
__device__ int64_t PlaceOf(int64_t index, int rank, const int64_t* dims, const int64_t* strides) {
  if (rank == 1) return index * strides[0];
  int64_t place = 0;
  for (int d = rank - 1; d >= 0; --d) {
    const int64_t outer = index / dims[d];
    place += (index - outer * dims[d]) * strides[d];
    index = outer;
  }
  return place;
}

// Place of the reduced element `index`. With one reduced dim it takes no branch, and the loads of a
// loop overlap.
template <bool kOneDim>
__device__ int64_t ReducedPlace(const ReduceSumArgs& args, int64_t index) {
  if constexpr (kOneDim) {
    return index * args.reduced_strides[0];
  } else {
    return PlaceOf(index, args.reduced_rank, args.reduced_dims, args.reduced_strides);
  }
}

// Where the sum of `output` over the part `split` goes.
__device__ void StoreSum(const ReduceSumArgs& args, int64_t output, int64_t split, float sum) {
  if (args.scratch != nullptr) {
    args.scratch[split * args.outputs + output] = sum;
  } else {
    StoreAny(args.y, args.result, output, sum);
  }
}

// The reduced elements [*begin, *end) of a part: whole units.
__device__ void PartOf(const ReduceSumArgs& args, int64_t split, int unit, int64_t* begin,
                       int64_t* end) {
  const int64_t units = args.reduced / unit;
  const int64_t each = (units + args.splits - 1) / args.splits;
  *begin = split * each * unit;
  const int64_t stop = (split + 1) * each;
  *end = (stop < units ? stop : units) * unit;
}

// Calls add(values) for the units at place(i), i from `begin` in steps to `end`; the loads of four
// overlap.
template <typename T, int N, typename Place, typename Add>
__device__ void ForEachUnit(int64_t begin, int64_t end, int64_t step, const Place& place,
                            const Add& add) {
  constexpr int kAtOnce = 4;
  int64_t i = begin;
  for (; i + (kAtOnce - 1) * step < end; i += kAtOnce * step) {
    float values[kAtOnce][N];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) LoadUnit<T, N>(place(i + k * step), values[k]);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) add(values[k]);
  }
  for (; i < end; i += step) {
    float values[N];
    LoadUnit<T, N>(place(i), values);
    add(values);
  }
}

// The last dim is reduced: a warp or a block per result and part.
template <typename T, int N, bool kOneDim>
__global__ void __launch_bounds__(kThreads) ReduceRowsKernel(const ReduceSumArgs args) {
  __shared__ float part[kWarp];
  const int64_t job = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (job >= args.outputs * args.splits) return;
  const int64_t split = job / args.outputs;
  const int64_t output = job - split * args.outputs;
  const T* x = static_cast<const T*>(args.x) +
               PlaceOf(output, args.kept_rank, args.kept_dims, args.kept_strides);
  int64_t begin = 0;
  int64_t end = 0;
  PartOf(args, split, N, &begin, &end);
  float sum = 0;
  ForEachUnit<T, N>(
      begin + threadIdx.x * N, end, static_cast<int64_t>(blockDim.x) * N,
      [&](int64_t r) { return x + ReducedPlace<kOneDim>(args, r); },
      [&](const float(&values)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) sum += values[i];
      });
  sum = RowSum(sum, part);
  if (threadIdx.x == 0) StoreSum(args, output, split, sum);
}

// The last dim is kept: a thread has a unit of results, of which a warp has neighbours.
template <typename T, int N, bool kOneDim>
__global__ void __launch_bounds__(kThreads) ReduceColumnsKernel(const ReduceSumArgs args) {
  __shared__ float sums[kColumnRows][kWarp * N];
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * N;
  const int64_t split = blockIdx.y;
  float total[N] = {};
  if (output < args.outputs) {
    const T* x = static_cast<const T*>(args.x) +
                 PlaceOf(output, args.kept_rank, args.kept_dims, args.kept_strides);
    int64_t begin = 0;
    int64_t end = 0;
    PartOf(args, split, 1, &begin, &end);
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += kColumnRows) {
      float values[N];
      LoadUnit<T, N>(x + ReducedPlace<kOneDim>(args, r), values);
#pragma unroll
      for (int i = 0; i < N; ++i) total[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[threadIdx.y][threadIdx.x * N + i] = total[i];
  __syncthreads();
  if (threadIdx.y != 0 || output >= args.outputs) return;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (int y = 1; y < kColumnRows; ++y) total[i] += sums[y][threadIdx.x * N + i];
    StoreSum(args, output + i, split, total[i]);
  }
}

// A block per 32 results. In f64: there may be many parts, and they are few numbers.
__global__ void __launch_bounds__(kWarp* kSplitRows) SumSplitsKernel(const ReduceSumArgs args) {
  __shared__ double sums[kSplitRows][kWarp];
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  double sum = 0;
  if (output < args.outputs) {
#pragma unroll 4
    for (int64_t s = threadIdx.y; s < args.splits; s += kSplitRows) {
      sum += static_cast<double>(args.scratch[s * args.outputs + output]);
    }
  }
  for (unsigned by = kSplitRows / 2; by > 0; by /= 2) {
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y < by) sum += sums[threadIdx.y + by][threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.y != 0 || output >= args.outputs) return;
  StoreAny(args.y, args.result, output, static_cast<float>(sum));
}

template <typename T, int N, bool kOneDim>
Code LaunchReduce(const ReduceSumArgs& args, StreamHandle stream) {
  if (args.last_is_kept) {
    const int64_t columns = (args.outputs / N + kWarp - 1) / kWarp;
    if (columns > kMostBlocks || args.splits > kMostGridRows) return kTooManyBlocks;
    const LaunchShape shape{
        dim3{static_cast<unsigned>(columns), static_cast<unsigned>(args.splits), 1},
        dim3{kWarp, kColumnRows, 1}, 0};
    return Launch(stream, shape, ReduceColumnsKernel<T, N, kOneDim>, args);
  }
  const int64_t units = args.reduced / args.splits / N;
  LaunchShape shape{{}, RowBlock(units <= 8 * kWarp ? kWarp : kThreads), 0};
  const int64_t blocks = (args.outputs * args.splits + shape.block.y - 1) / shape.block.y;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  shape.grid.x = static_cast<unsigned>(blocks);
  return Launch(stream, shape, ReduceRowsKernel<T, N, kOneDim>, args);
}

template <typename T, int N>
Code LaunchFor(const ReduceSumArgs& args, StreamHandle stream) {
  return args.reduced_rank == 1 ? LaunchReduce<T, N, true>(args, stream)
                                : LaunchReduce<T, N, false>(args, stream);
}

Code AddParts(const ReduceSumArgs& args, StreamHandle stream) {
  LaunchShape shape = Blocks((args.outputs + kWarp - 1) / kWarp, kWarp);
  if (args.outputs > kMostBlocks) return kTooManyBlocks;
  shape.block.y = kSplitRows;
  return Launch(stream, shape, SumSplitsKernel, args);
}

// Whether units of `unit` elements stay together: along the last dim of its kind, at aligned
// places.
bool Fits(const ReduceSumArgs& args, int64_t unit) {
  const int last = (args.last_is_kept ? args.kept_rank : args.reduced_rank) - 1;
  if ((args.last_is_kept ? args.kept_dims : args.reduced_dims)[last] % unit != 0) return false;
  bool fits = true;
  for (int d = 0; d < args.kept_rank; ++d) {
    fits = fits && ((args.last_is_kept && d == last) || args.kept_strides[d] % unit == 0);
  }
  for (int d = 0; d < args.reduced_rank; ++d) {
    fits = fits && ((!args.last_is_kept && d == last) || args.reduced_strides[d] % unit == 0);
  }
  return fits;
}

// `threads` neighbours share a result: a warp where the last dim is reduced, else one.
template <typename T>
__global__ void __launch_bounds__(kThreads) ReduceMaxKernel(const ReduceSumArgs args, int threads) {
  const int64_t output = GlobalThread() / threads;
  if (output >= args.outputs) return;
  const T* x = static_cast<const T*>(args.x) +
               PlaceOf(output, args.kept_rank, args.kept_dims, args.kept_strides);
  float largest = -__uint_as_float(0x7f800000u);
  for (int64_t r = GlobalThread() % threads; r < args.reduced; r += threads) {
    largest = Larger(largest, ToFloat(x[ReducedPlace<false>(args, r)]));
  }
  if (threads == kWarp) largest = WarpMax(largest);
  if (GlobalThread() % threads == 0) StoreAny(args.y, args.result, output, largest);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    SumSquaresKernel(const T* x, int64_t count, float* parts) {
  __shared__ float part[kWarp];
  float sum = 0;
  const int64_t units = count / N;
  ForEachUnit<T, N>(
      GlobalThread(), units, GridThreads(), [&](int64_t i) { return x + i * N; },
      [&](const float(&values)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) sum += values[j] * values[j];
      });
  if (blockIdx.x == 0 && threadIdx.x < count - units * N) {
    const float value = ToFloat(x[units * N + threadIdx.x]);
    sum += value * value;
  }
  sum = BlockSum(sum, part);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    SumAllKernel(const float* parts, int64_t count, void* to, FloatType type) {
  __shared__ float part[kWarp];
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  sum = BlockSum(sum, part);
  if (threadIdx.x == 0) StoreAny(to, type, 0, sum);
}

}  // namespace

Code launches::ReduceSum(const ReduceSumArgs& args, StreamHandle stream) {
  if (args.x == nullptr) return AddParts(args, stream);
  const Code code = ForType(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kUnit = UnitOf<T>();
    return Fits(args, kUnit) ? LaunchFor<T, kUnit>(args, stream) : LaunchFor<T, 1>(args, stream);
  });
  return code != 0 || args.scratch == nullptr ? code : AddParts(args, stream);
}

Code launches::ReduceMax(const ReduceMaxArgs& args, StreamHandle stream) {
  const int threads = args.dims.last_is_kept ? 1 : kWarp;
  const int64_t blocks = (args.dims.outputs * threads + kThreads - 1) / kThreads;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return ForType(args.dims.type, [&](auto element) {
    return Launch(stream, Blocks(blocks, kThreads), ReduceMaxKernel<decltype(element)>, args.dims,
                  threads);
  });
}

Code launches::SumSquares(const SumSquaresArgs& args, StreamHandle stream) {
  int64_t parts = 0;
  const Code code = ForType(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kUnit = UnitOf<T>();
    parts = BlocksFor((args.count + kUnit - 1) / kUnit, kThreads, kSumSquaresParts);
    return Launch(stream, Blocks(parts, kThreads), SumSquaresKernel<T, kUnit>,
                  static_cast<const T*>(args.x), args.count, args.scratch);
  });
  if (code != 0) return code;
  return Launch(stream, Blocks(1, kThreads), SumAllKernel, args.scratch, parts, args.y,
                args.result);
}

}  // namespace meshwright::ops::cuda
