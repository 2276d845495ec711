// slice, pad and transpose of elements of any type: only their bytes matter.
#include "ops/cuda/language.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;
constexpr int kTileRows = 8;  // threads along the tile's other side

// Calls body(T{}) with a type of `bytes`.
template <typename Body>
Code ForBytes(int64_t bytes, const Body& body) {
  switch (bytes) {
    case 16:
      return body(uint4{});
    case 8:
      return body(uint64_t{});
    case 4:
      return body(uint32_t{});
    case 2:
      return body(uint16_t{});
    default:
      return body(uint8_t{});
  }
}

// The largest power of two up to 16 that divides all of them.
int64_t CommonUnit(int64_t a, int64_t b, int64_t c) {
  int64_t unit = 16;
  while ((a | b | c) % unit != 0) unit /= 2;
  return unit;
}

// Calls body(Index{}) with the type for counts and places up to `largest`: dividing numbers of 64
// bits costs a GPU more than what is copied meanwhile.
template <typename Body>
Code ForIndex(int64_t largest, const Body& body) {
  // A grid's step beyond the end must not wrap around.
  constexpr int64_t kMostOf32Bits = int64_t{1} << 31;
  return largest < kMostOf32Bits ? body(uint32_t{}) : body(uint64_t{});
}

template <typename Index>
__device__ Index ThreadOfGrid() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
template <typename Index>
__device__ Index ThreadsOfGrid() {
  return static_cast<Index>(gridDim.x) * blockDim.x;
}

// All sizes are units of T.
struct RowsToCopy {
  int64_t rows;
  int64_t from;  // of a row
  int64_t to;
  int64_t shift;
  int64_t to_row;  // from one row of `to` to the next
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    CopyRowsKernel(const T* from, T* to, const RowsToCopy sizes) {
  const Index units = static_cast<Index>(sizes.rows * sizes.to);
  const Index to_units = static_cast<Index>(sizes.to);
  for (Index i = ThreadOfGrid<Index>(); i < units; i += ThreadsOfGrid<Index>()) {
    const Index row = i / to_units;
    const int64_t at = static_cast<int64_t>(i - row * to_units) + sizes.shift;
    const bool there = at >= 0 && at < sizes.from;
    const int64_t place =
        static_cast<int64_t>(i) + static_cast<int64_t>(row) * (sizes.to_row - sizes.to);
    to[place] = there ? from[static_cast<int64_t>(row) * sizes.from + at] : T{};
  }
}

// Where the last dim stays last: runs of `run` units, read at strided places. Dims are those of the
// runs, strides and `run` units of T.
struct RunsToCopy {
  int64_t run = 0;
  int64_t runs = 1;
  int32_t rank = 0;
  int64_t dims[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    CopyRunsKernel(const T* from, T* to, const RunsToCopy sizes) {
  const Index run = static_cast<Index>(sizes.run);
  const Index units = static_cast<Index>(sizes.runs * sizes.run);
  for (Index i = ThreadOfGrid<Index>(); i < units; i += ThreadsOfGrid<Index>()) {
    Index rest = i / run;
    Index place = i - rest * run;
    for (int d = sizes.rank - 1; d > 0; --d) {
      const Index dim = static_cast<Index>(sizes.dims[d]);
      const Index outer = rest / dim;
      place += (rest - outer * dim) * static_cast<Index>(sizes.strides[d]);
      rest = outer;
    }
    if (sizes.rank > 0) place += rest * static_cast<Index>(sizes.strides[0]);
    to[i] = from[place];
  }
}

// Tiles over the result's last dim and the dim `contiguous`, which is the last one of `from`.
template <typename T>
__global__ void __launch_bounds__(kTile* kTileRows)
    TransposeKernel(const TransposeArgs args, int contiguous, int64_t tiles) {
  __shared__ T tile[kTile][kTile + 1];
  const int last = args.rank - 1;
  const int64_t width = args.dims[last];
  const int64_t height = args.dims[contiguous];
  int64_t result_stride = 1;  // of `contiguous` in the result
  for (int d = contiguous + 1; d <= last; ++d) result_stride *= args.dims[d];
  const int64_t across = (width + kTile - 1) / kTile;
  const int64_t down = (height + kTile - 1) / kTile;
  for (int64_t at = blockIdx.x; at < tiles; at += gridDim.x) {
    int64_t rest = at / (across * down);
    int64_t from = 0;
    int64_t to = 0;
    int64_t stride = 1;
    for (int d = last; d >= 0; --d) {
      if (d != last && d != contiguous) {
        from += rest % args.dims[d] * args.strides[d];
        to += rest % args.dims[d] * stride;
        rest /= args.dims[d];
      }
      stride *= args.dims[d];
    }
    const int64_t column = at % across * kTile;
    const int64_t row = at / across % down * kTile;
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
      if (column + y >= width || row + threadIdx.x >= height) continue;
      tile[y][threadIdx.x] = static_cast<const T*>(
          args.from)[from + (column + y) * args.strides[last] + row + threadIdx.x];
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
      if (row + y >= height || column + threadIdx.x >= width) continue;
      static_cast<T*>(args.to)[to + (row + y) * result_stride + column + threadIdx.x] =
          tile[threadIdx.x][y];
    }
  }
}

Code CopyRuns(const TransposeArgs& args, StreamHandle stream) {
  RunsToCopy sizes;
  sizes.rank = args.rank - 1;
  int64_t strides = 0;  // for their common divisor
  for (int d = 0; d < sizes.rank; ++d) strides |= args.strides[d] * args.element_bytes;
  const int64_t run_bytes = args.dims[args.rank - 1] * args.element_bytes;
  const int64_t unit = CommonUnit(run_bytes, strides, 0);
  sizes.run = run_bytes / unit;
  int64_t last = sizes.run;  // behind the last place that is read
  for (int d = 0; d < sizes.rank; ++d) {
    sizes.runs *= args.dims[d];
    sizes.dims[d] = args.dims[d];
    sizes.strides[d] = args.strides[d] * args.element_bytes / unit;
    last += (args.dims[d] - 1) * sizes.strides[d];
  }
  const int64_t units = sizes.runs * sizes.run;
  const LaunchShape shape = Blocks(BlocksFor(units, kThreads), kThreads);
  return ForBytes(unit, [&](auto element) {
    using T = decltype(element);
    return ForIndex(last > units ? last : units, [&](auto index) {
      return Launch(stream, shape, CopyRunsKernel<T, decltype(index)>,
                    static_cast<const T*>(args.from), static_cast<T*>(args.to), sizes);
    });
  });
}

}  // namespace

Code launches::CopyRows(const CopyRowsArgs& args, StreamHandle stream) {
  const int64_t to_row = args.to_row_bytes == 0 ? args.to_bytes : args.to_row_bytes;
  const int64_t unit =
      CommonUnit(args.from_bytes | args.place_bytes, args.to_bytes | to_row, args.shift_bytes);
  const RowsToCopy sizes{args.rows, args.from_bytes / unit, args.to_bytes / unit,
                         args.shift_bytes / unit, to_row / unit};
  const int64_t units = sizes.rows * sizes.to;
  const LaunchShape shape = Blocks(BlocksFor(units, kThreads), kThreads);
  return ForBytes(unit, [&](auto element) {
    using T = decltype(element);
    return ForIndex(units, [&](auto index) {
      return Launch(stream, shape, CopyRowsKernel<T, decltype(index)>,
                    static_cast<const T*>(args.from),
                    static_cast<T*>(args.to) + args.place_bytes / unit, sizes);
    });
  });
}

Code launches::Transpose(const TransposeArgs& args, StreamHandle stream) {
  if (args.strides[args.rank - 1] == 1) return CopyRuns(args, stream);
  int contiguous = 0;
  while (args.strides[contiguous] != 1) ++contiguous;
  int64_t tiles = 1;
  for (int d = 0; d < args.rank; ++d) {
    const bool tiled = d == contiguous || d == args.rank - 1;
    tiles *= tiled ? (args.dims[d] + kTile - 1) / kTile : args.dims[d];
  }
  const LaunchShape shape{dim3{static_cast<unsigned>(BlocksFor(tiles, 1)), 1, 1},
                          dim3{kTile, kTileRows, 1}, 0};
  return ForBytes(args.element_bytes, [&](auto element) {
    return Launch(stream, shape, TransposeKernel<decltype(element)>, args, contiguous, tiles);
  });
}

}  // namespace meshwright::ops::cuda
