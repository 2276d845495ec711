// einsum {alone}: products whose results do not depend on how many others are computed with them.
// The library chooses its kernels, and with them the order of sums, by the number of rows.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/product_tiles.cuh"

namespace meshwright::ops::cuda {
namespace {

using Loop = AloneProductArgs::Loop;

struct Offsets {
  int64_t a;
  int64_t b;
  int64_t c;
};

// Where step number `step` of all loops is, the last loop the fastest.
__device__ inline Offsets OffsetsOf(const Loop (&loops)[AloneProductArgs::kMostLoops],
                                    int64_t step) {
  Offsets at{0, 0, 0};
  for (int i = AloneProductArgs::kMostLoops - 1; i >= 0; --i) {
    const int64_t place = step % loops[i].size;
    step /= loops[i].size;
    at.a += place * loops[i].a;
    at.b += place * loops[i].b;
    at.c += place * loops[i].c;
  }
  return at;
}

__device__ inline int64_t StepsOf(const Loop (&loops)[AloneProductArgs::kMostLoops]) {
  int64_t steps = 1;
  for (const Loop& loop : loops) steps *= loop.size;
  return steps;
}

// A tile of rows and columns of one step of `outer`.
__global__ void __launch_bounds__(kProductThreads) AloneProductKernel(const AloneProductArgs args) {
  __shared__ Factors factors;
  const int64_t row_tiles = (args.m.size + kTile - 1) / kTile;
  const int64_t column_tiles = (args.n.size + kTile - 1) / kTile;
  const int64_t block = blockIdx.x;
  const int64_t first_column = block % column_tiles * kTile;
  const int64_t first_row = block / column_tiles % row_tiles * kTile;
  const Offsets outer = OffsetsOf(args.outer, block / (column_tiles * row_tiles));
  const int64_t depths = StepsOf(args.depth);
  float sums[kEach][kEach] = {};
  for (int64_t step = 0; step < depths; ++step) {
    const Offsets depth = OffsetsOf(args.depth, step);
    for (int64_t first = 0; first < args.k.size; first += kDepth) {
      __syncthreads();
      for (int at = static_cast<int>(threadIdx.x); at < kDepth * kTile; at += kProductThreads) {
        // Neighbouring threads read neighbouring elements, where one of the dims has such.
        const bool along_k = args.k.a == 1;
        const int64_t k = first + (along_k ? at % kDepth : at / kTile);
        const int64_t row = first_row + (along_k ? at / kDepth : at % kTile);
        factors.a[k - first][row - first_row] =
            k < args.k.size && row < args.m.size
                ? LoadAny(args.a, args.a_type, outer.a + depth.a + row * args.m.a + k * args.k.a)
                : 0.0f;
      }
      for (int at = static_cast<int>(threadIdx.x); at < kDepth * kTile; at += kProductThreads) {
        const bool along_k = args.k.b == 1;
        const int64_t k = first + (along_k ? at % kDepth : at / kTile);
        const int64_t column = first_column + (along_k ? at / kDepth : at % kTile);
        factors.b[k - first][column - first_column] =
            k < args.k.size && column < args.n.size
                ? LoadAny(args.b, args.b_type, outer.b + depth.b + column * args.n.b + k * args.k.b)
                : 0.0f;
      }
      __syncthreads();
      AddProducts(factors, sums);
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t row = first_row + static_cast<int64_t>(threadIdx.x) / kAcross * kEach + i;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t column = first_column + static_cast<int64_t>(threadIdx.x) % kAcross * kEach + j;
      if (row >= args.m.size || column >= args.n.size) continue;
      const int64_t at = outer.c + row * args.m.c + column * args.n.c;
      const float old = args.accumulate ? LoadAny(args.c, args.c_type, at) : 0.0f;
      StoreAny(args.c, args.c_type, at, old + sums[i][j]);
    }
  }
}

}  // namespace

Code launches::AloneProduct(const AloneProductArgs& args, StreamHandle stream) {
  int64_t blocks = Tiles(args.m.size) * Tiles(args.n.size);
  for (const Loop& loop : args.outer) blocks *= loop.size;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return Launch(stream, Blocks(blocks, kProductThreads), AloneProductKernel, args);
}

}  // namespace meshwright::ops::cuda
