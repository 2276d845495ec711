// embedding: rows of a table by id. embedding_grad: sums of rows by id, in the order of their
// positions, so that no result depends on the order in which blocks run.
//
// Positions are put into a bucket per id, in any order, and then into their own: by counting the
// smaller ones where a bucket is small, else by going through all ids. The buckets, one after the
// other, are cut into parts of equal size, and a block adds up the rows of a part: an id that is
// everywhere costs no more than many that are rare. Buckets that reach over several parts are
// joined at the end.
#include "ops/cuda/fault.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kScanThreads = 1024;
constexpr int kRowsOfABlock = 8;
constexpr int kPart = static_cast<int>(kEmbeddingPart);
// Loads that a thread has on their way: of units of a row, of rows, of ids.
constexpr int kUnitsAtOnce = 4;
constexpr int kRowsAtOnce = 8;
constexpr int kIdsAtOnce = 4;

// A warp per id. Ids outside the local rows give zeros.
template <typename T>
__global__ void __launch_bounds__(kThreads) EmbeddingKernel(EmbeddingArgs args) {
  const int64_t units = args.row_bytes / static_cast<int64_t>(sizeof(T));
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= args.count) return;
  const int32_t id = args.ids[i];
  const int64_t row = id - args.first_row;
  const bool here = row >= 0 && row < args.rows;
  if (threadIdx.x == 0) (void)IsTokenId(args.fault, id, i);
  const T* from = static_cast<const T*>(args.table) + (here ? row : 0) * units;
  T* to = static_cast<T*>(args.to) + i * units;
  for (int64_t first = threadIdx.x; first < units; first += kUnitsAtOnce * kWarp) {
    T values[kUnitsAtOnce];
#pragma unroll
    for (int k = 0; k < kUnitsAtOnce; ++k) {
      values[k] = from[first + k * kWarp < units ? first + k * kWarp : first];
    }
#pragma unroll
    for (int k = 0; k < kUnitsAtOnce; ++k) {
      if (first + k * kWarp < units) to[first + k * kWarp] = here ? values[k] : T{};
    }
  }
}

// ---- Positions by id ----------------------------------------------------------------------------

// What EmbeddingGradArgs::scratch is cut into.
struct Buckets {
  int32_t* starts;     // [rows + 1]: first the sizes of the buckets
  int32_t* filled;     // [rows]
  int32_t* positions;  // [count], bucket by bucket
  int32_t* sorted;     // [count]: the same, each bucket in order
};

Buckets BucketsOf(const EmbeddingGradArgs& args) {
  int32_t* at = args.scratch;
  return {at, at + args.rows + 1, at + 2 * args.rows + 1, at + 2 * args.rows + 1 + args.count};
}

// Buckets up to this size are sorted by counting. The cost of that grows with the square of the
// size, that of going through all ids with the number of larger buckets: about equal at the root.
int32_t CountedBucket(int64_t count) {
  int32_t size = 256;
  while (static_cast<int64_t>(size) * size < count) size *= 2;
  return size;
}

__device__ bool IsHere(const EmbeddingGradArgs& args, int64_t row, int32_t id) {
  return row >= 0 && row < args.rows && id < args.fault.table_rows;
}

__global__ void __launch_bounds__(kThreads) ClearKernel(int32_t* to, int64_t count) {
  for (int64_t i = GlobalThread(); i < count; i += GridThreads()) to[i] = 0;
}

__global__ void __launch_bounds__(kThreads) CountKernel(EmbeddingGradArgs args, Buckets buckets) {
  for (int64_t i = GlobalThread(); i < args.count; i += GridThreads()) {
    const int64_t row = args.ids[i] - args.first_row;
    if (!IsTokenId(args.fault, args.ids[i], i) || row < 0 || row >= args.rows) continue;
    atomicAdd(&buckets.starts[row], 1);
  }
}

// The sum of the lanes up to this one.
__device__ int32_t SumUpTo(int32_t value) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
  for (int by = 1; by < kWarp; by *= 2) {
    const int32_t before = __shfl_up_sync(kAllLanes, value, by);
    if (lane >= by) value += before;
  }
  return value;
}

// The sum over the threads of the warps before this one; *all: over the block. `sums` is shared
// memory of 32 numbers that nothing else uses.
__device__ int32_t SumOfWarpsBefore(int32_t value, int32_t* sums, int32_t* all) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  value = SumUpTo(value);
  if (lane == kWarp - 1) sums[warp] = value;
  __syncthreads();
  const int32_t of_lane = lane < static_cast<int>(blockDim.x / kWarp) ? sums[lane] : 0;
  const int32_t up_to = SumUpTo(of_lane);
  *all = __shfl_sync(kAllLanes, up_to, kWarp - 1);
  return __shfl_sync(kAllLanes, up_to - of_lane, warp);
}

// The stretch of `count` elements that this warp of the block has.
__device__ void StretchOf(int64_t count, int64_t* begin, int64_t* end) {
  const int64_t warps = blockDim.x / kWarp;
  const int64_t each = ((count + kWarp - 1) / kWarp + warps - 1) / warps * kWarp;
  const int64_t first = threadIdx.x / kWarp * each;
  *begin = first < count ? first : count;
  *end = first + each < count ? first + each : count;
}

// Sizes become starts: one block.
__global__ void __launch_bounds__(kScanThreads) ScanKernel(int64_t rows, int32_t* starts) {
  __shared__ int32_t sums[kWarp];
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  int64_t begin = 0;
  int64_t end = 0;
  StretchOf(rows, &begin, &end);
  int32_t sum = 0;
#pragma unroll 4
  for (int64_t row = begin + lane; row < end; row += kWarp) sum += starts[row];
  int32_t all = 0;
  int32_t start = SumOfWarpsBefore(sum, sums, &all);
  for (int64_t first = begin + lane; first - lane < end; first += kIdsAtOnce * kWarp) {
    int32_t sizes[kIdsAtOnce];
#pragma unroll
    for (int k = 0; k < kIdsAtOnce; ++k) {
      sizes[k] = starts[first + k * kWarp < end ? first + k * kWarp : end - 1];
    }
#pragma unroll
    for (int k = 0; k < kIdsAtOnce; ++k) {
      const bool here = first + k * kWarp < end;
      const int32_t size = here ? sizes[k] : 0;
      const int32_t up_to = SumUpTo(size);
      if (here) starts[first + k * kWarp] = start + up_to - size;
      start += __shfl_sync(kAllLanes, up_to, kWarp - 1);
    }
  }
  if (threadIdx.x == 0) starts[rows] = all;
}

__global__ void __launch_bounds__(kThreads) PlaceKernel(EmbeddingGradArgs args, Buckets buckets) {
  for (int64_t i = GlobalThread(); i < args.count; i += GridThreads()) {
    const int64_t row = args.ids[i] - args.first_row;
    if (!IsHere(args, row, args.ids[i])) continue;
    const int32_t place = buckets.starts[row] + atomicAdd(&buckets.filled[row], 1);
    buckets.positions[place] = static_cast<int32_t>(i);
  }
}

// A thread per position of a bucket of at most `counted`: its place is the number of smaller ones.
__global__ void __launch_bounds__(kThreads)
    RankKernel(EmbeddingGradArgs args, Buckets buckets, int32_t counted) {
  for (int64_t i = GlobalThread(); i < args.count; i += GridThreads()) {
    const int64_t row = args.ids[i] - args.first_row;
    if (!IsHere(args, row, args.ids[i])) continue;
    const int32_t begin = buckets.starts[row];
    const int32_t end = buckets.starts[row + 1];
    if (end - begin > counted) continue;
    int32_t before = 0;
#pragma unroll 4
    for (int32_t j = begin; j < end; ++j) before += buckets.positions[j] < i ? 1 : 0;
    buckets.sorted[begin + before] = static_cast<int32_t>(i);
  }
}

// A block per larger bucket, which goes through all ids: the first block whose multiple of
// `counted` lies in the bucket.
__global__ void __launch_bounds__(kScanThreads)
    CollectKernel(EmbeddingGradArgs args, Buckets buckets, int32_t counted) {
  __shared__ int32_t sums[kWarp];
  const int64_t place = static_cast<int64_t>(blockIdx.x) * counted;
  if (place >= buckets.starts[args.rows]) return;
  const int32_t id = args.ids[buckets.positions[place]];
  const int32_t bucket = buckets.starts[id - args.first_row];
  const int32_t size = buckets.starts[id - args.first_row + 1] - bucket;
  if (size <= counted || place - bucket >= counted) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  int64_t begin = 0;
  int64_t end = 0;
  StretchOf(args.count, &begin, &end);
  int32_t found = 0;
#pragma unroll 4
  for (int64_t i = begin + lane; i < end; i += kWarp) found += args.ids[i] == id ? 1 : 0;
  int32_t all = 0;
  int32_t* to = buckets.sorted + bucket + SumOfWarpsBefore(found, sums, &all);
  for (int64_t first = begin + lane; first - lane < end; first += kIdsAtOnce * kWarp) {
    int32_t ids[kIdsAtOnce];
#pragma unroll
    for (int k = 0; k < kIdsAtOnce; ++k) {
      ids[k] = args.ids[first + k * kWarp < end ? first + k * kWarp : end - 1];
    }
#pragma unroll
    for (int k = 0; k < kIdsAtOnce; ++k) {
      const bool equal = first + k * kWarp < end && ids[k] == id;
      const unsigned lanes = __ballot_sync(kAllLanes, equal);
      if (equal) to[__popc(lanes & ((1u << lane) - 1))] = static_cast<int32_t>(first + k * kWarp);
      to += __popc(lanes);
    }
  }
}

Code SortPositions(const EmbeddingGradArgs& args, const Buckets& buckets, StreamHandle stream) {
  const LaunchShape by_id = Blocks(BlocksFor(args.count, kThreads), kThreads);
  const int64_t counters = 2 * args.rows + 1;
  Code code = Launch(stream, Blocks(BlocksFor(counters, kThreads), kThreads), ClearKernel,
                     buckets.starts, counters);
  if (code == 0) code = Launch(stream, by_id, CountKernel, args, buckets);
  const auto threads_for = [](int64_t items) {
    const int64_t threads = (items / kWarp + 1) * kWarp;
    return threads < kScanThreads ? threads : kScanThreads;
  };
  if (code == 0) {
    code = Launch(stream, Blocks(1, threads_for(args.rows)), ScanKernel, args.rows, buckets.starts);
  }
  if (code == 0) code = Launch(stream, by_id, PlaceKernel, args, buckets);
  const int32_t counted = CountedBucket(args.count);
  if (code == 0) code = Launch(stream, by_id, RankKernel, args, buckets, counted);
  // No bucket is large where there are few positions.
  if (code != 0 || args.count <= counted) return code;
  const int64_t multiples = (args.count + counted - 1) / counted;
  return Launch(stream, Blocks(multiples, threads_for(args.count)), CollectKernel, args, buckets,
                counted);
}

// ---- Sums of rows -------------------------------------------------------------------------------

template <int N>
__device__ void LoadFloats(const float* from, float (&values)[N]) {
  constexpr int kUnit = N % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < N; i += kUnit) {
    float unit[kUnit];
    LoadUnit<float, kUnit>(from + i, unit);
#pragma unroll
    for (int j = 0; j < kUnit; ++j) values[i + j] = unit[j];
  }
}

template <int N>
__device__ void StoreFloats(float* to, const float (&values)[N]) {
  constexpr int kUnit = N % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < N; i += kUnit) {
    float unit[kUnit];
#pragma unroll
    for (int j = 0; j < kUnit; ++j) unit[j] = values[i + j];
    StoreUnit<float, kUnit>(to + i, unit);
  }
}

// Adds what was there before and stores the result.
template <typename T, int N>
__device__ void StoreResult(const EmbeddingGradArgs& args, int64_t row, int64_t at,
                            float (&sums)[N]) {
  const int64_t place = row * args.width + at;
  if (args.accumulator != nullptr) {
    float before[N];
    LoadUnit<T, N>(static_cast<const T*>(args.accumulator) + place, before);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] += before[k];
  }
  StoreUnit<T, N>(static_cast<T*>(args.to) + place, sums);
}

// What is done with the sum of a run of equal ids after a position of the part.
enum Ending : int32_t {
  kGoesOn,      // the next position has the same id
  kWhole,       // the bucket lies in this part: the sum is the result
  kOfBefore,    // the bucket began in a part before: sum 0 of the part
  kToBeJoined,  // the bucket goes on in the next part: sum 1
};

__device__ Ending EndingOf(const Buckets& buckets, int64_t row, int32_t place, int32_t begin,
                           int32_t end) {
  const int32_t bucket_begin = buckets.starts[row];
  const int32_t bucket_end = buckets.starts[row + 1];
  if (place + 1 != end && place + 1 != bucket_end) return kGoesOn;
  if (bucket_begin < begin) return kOfBefore;
  return bucket_end <= end ? kWhole : kToBeJoined;
}

// A block per part. A thread has a unit of columns; it loads some rows before it adds them up, so
// that the loads overlap whatever the ids are.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    SumPartsKernel(EmbeddingGradArgs args, Buckets buckets) {
  __shared__ int32_t positions[kPart];
  __shared__ int32_t rows[kPart];
  __shared__ Ending endings[kPart];
  const int32_t begin = static_cast<int32_t>(blockIdx.x) * kPart;
  const int32_t left = buckets.starts[args.rows] - begin;
  if (left <= 0) return;
  const int count = left < kPart ? left : kPart;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    positions[i] = buckets.sorted[begin + i];
    rows[i] = static_cast<int32_t>(args.ids[positions[i]] - args.first_row);
    endings[i] = EndingOf(buckets, rows[i], begin + i, begin, begin + count);
  }
  __syncthreads();
  for (int64_t at = threadIdx.x * N; at < args.width; at += static_cast<int64_t>(blockDim.x) * N) {
    const T* dy = static_cast<const T*>(args.dy) + at;
    float* const of_part = args.sums + static_cast<int64_t>(blockIdx.x) * 2 * args.width + at;
    float sums[N] = {};
    for (int first = 0; first < count; first += kRowsAtOnce) {
      float values[kRowsAtOnce][N];
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const int i = first + r < count ? first + r : count - 1;
        LoadUnit<T, N>(dy + positions[i] * args.width, values[r]);
      }
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (first + r >= count) break;
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] += values[r][k];
        const Ending ending = endings[first + r];
        if (ending == kGoesOn) continue;
        if (ending == kWhole) {
          StoreResult<T, N>(args, rows[first + r], at, sums);
        } else {
          StoreFloats<N>(of_part + (ending == kToBeJoined ? args.width : 0), sums);
        }
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] = 0;
      }
    }
  }
}

// A block per part and columns, for the bucket that begins in the part and goes on behind it: each
// row of threads adds up some of its parts.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    JoinPartsKernel(EmbeddingGradArgs args, Buckets buckets) {
  __shared__ float sums[kRowsOfABlock][kWarp * N];
  const int64_t part = blockIdx.x;
  const int64_t part_end = (part + 1) * kPart;
  if (part_end >= buckets.starts[args.rows]) return;
  const int64_t row = args.ids[buckets.sorted[part_end - 1]] - args.first_row;
  const int64_t end = buckets.starts[row + 1];
  if (end <= part_end || buckets.starts[row] < part * kPart) return;
  const int64_t parts = (end - 1) / kPart - part + 1;
  const int64_t each = (parts + kRowsOfABlock - 1) / kRowsOfABlock;
  const int64_t first = threadIdx.y * each;
  const int64_t last = first + each < parts ? first + each : parts;
  const int64_t at = (static_cast<int64_t>(blockIdx.y) * kWarp + threadIdx.x) * N;
  float total[N] = {};
  if (at < args.width) {
    const float* const from = args.sums + part * 2 * args.width + at;
#pragma unroll 4
    for (int64_t p = first; p < last; ++p) {
      float values[N];
      LoadFloats<N>(from + (p == 0 ? 1 : 2 * p) * args.width, values);
#pragma unroll
      for (int k = 0; k < N; ++k) total[k] += values[k];
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) sums[threadIdx.y][threadIdx.x * N + k] = total[k];
  __syncthreads();
  if (threadIdx.y != 0 || at >= args.width) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (int y = 1; y < kRowsOfABlock; ++y) total[k] += sums[y][threadIdx.x * N + k];
  }
  StoreResult<T, N>(args, row, at, total);
}

// A warp per row: those without positions keep what was there before.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    UnusedRowsKernel(EmbeddingGradArgs args, const int32_t* starts, int64_t units) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= args.rows || starts[row] != starts[row + 1]) return;
  const T* from = static_cast<const T*>(args.accumulator);
  T* to = static_cast<T*>(args.to) + row * units;
  for (int64_t u = threadIdx.x; u < units; u += kWarp) {
    to[u] = from != nullptr ? from[row * units + u] : T{};
  }
}

// A warp per row, of which a block has several.
LaunchShape WarpPerRow(int64_t rows) {
  return {dim3{static_cast<unsigned>((rows + kRowsOfABlock - 1) / kRowsOfABlock), 1, 1},
          dim3{kWarp, kRowsOfABlock, 1}, 0};
}

// Calls body(T{}) with the largest type that rows are whole numbers of.
template <typename Body>
Code ForRowBytes(int64_t row_bytes, const Body& body) {
  if (row_bytes % 16 == 0) return body(uint4{});
  if (row_bytes % 4 == 0) return body(uint32_t{});
  return body(uint16_t{});
}

template <typename T, int N>
Code SumParts(const EmbeddingGradArgs& args, const Buckets& buckets, StreamHandle stream) {
  const int64_t parts = EmbeddingParts(args.count);
  const int64_t threads = (args.width / N + kWarp - 1) / kWarp * kWarp;
  const Code code = Launch(stream, Blocks(parts, threads < kThreads ? threads : kThreads),
                           SumPartsKernel<T, N>, args, buckets);
  if (code != 0 || parts <= 1) return code;
  constexpr int kUnit = N == 1 ? 1 : 4;
  const int64_t columns = (args.width / kUnit + kWarp - 1) / kWarp;
  if (columns > kMostGridRows) return kTooManyBlocks;
  const LaunchShape shape{dim3{static_cast<unsigned>(parts - 1), static_cast<unsigned>(columns), 1},
                          dim3{kWarp, kRowsOfABlock, 1}, 0};
  return Launch(stream, shape, JoinPartsKernel<T, kUnit>, args, buckets);
}

}  // namespace

Code launches::Embedding(const EmbeddingArgs& args, StreamHandle stream) {
  if (args.count > kMostBlocks) return kTooManyBlocks;
  return ForRowBytes(args.row_bytes, [&](auto element) {
    return Launch(stream, WarpPerRow(args.count), EmbeddingKernel<decltype(element)>, args);
  });
}

Code launches::EmbeddingGrad(const EmbeddingGradArgs& args, StreamHandle stream) {
  if (args.rows > kMostBlocks || args.count > kMostBlocks) return kTooManyBlocks;
  const Buckets buckets = BucketsOf(args);
  Code code = SortPositions(args, buckets, stream);
  if (code != 0) return code;
  code = ForType(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kUnit = UnitOf<T>();
    return args.width % kUnit == 0 ? SumParts<T, kUnit>(args, buckets, stream)
                                   : SumParts<T, 1>(args, buckets, stream);
  });
  if (code != 0 || args.to == args.accumulator) return code;
  const int64_t row_bytes = args.width * FloatBytes(args.type);
  return ForRowBytes(row_bytes, [&](auto element) {
    using T = decltype(element);
    return Launch(stream, WarpPerRow(args.rows), UnusedRowsKernel<T>, args, buckets.starts,
                  row_bytes / static_cast<int64_t>(sizeof(T)));
  });
}

}  // namespace meshwright::ops::cuda
