// Tiles of attention in shared memory, for the kernels of attention.cu and attention_grad.cu.
//
// A block has kRows queries and goes over tiles of kRows keys (or the other way round). Eight
// threads share a row: thread c of row r has the pairs (r, c), (r, c + 8), ... and the elements
// c, c + 8, ... of what the row sums up. For .cu files only.
//
// Thread rule: as kernels.
#pragma once

#include "ops/cuda/random.cuh"
#include "ops/cuda/token_places.cuh"
#include "ops/cuda/training_args.h"

namespace meshwright::ops::cuda {

constexpr int kRowThreads = 8;

__device__ inline float MinusInfinity() { return -__uint_as_float(0x7f800000u); }

// Where the elements of token 0 of a head begin.
__device__ inline int64_t HeadStart(const HeadsArgs& heads, int64_t batch, int64_t head) {
  return batch * heads.batch_stride + head * heads.head_stride;
}

// Floats between the rows of a tile: whole columns of all threads, and odd, so that a column is
// spread over all banks.
__host__ __device__ inline int64_t TileStride(int64_t head_size) {
  return (head_size + kRowThreads - 1) / kRowThreads * kRowThreads + 1;
}

// The head and the place in its sequence that a thread's row is.
struct Row {
  int row;     // of the tile
  int thread;  // of the row's eight

  __device__ Row()
      : row(static_cast<int>(threadIdx.x) / kRowThreads),
        thread(static_cast<int>(threadIdx.x) % kRowThreads) {}
};

// Tokens [first, first + kRows) of the `count` of a head; zeros behind them and the head's
// elements.
__device__ inline void LoadTile(const AttentionArgs& args, const HeadsArgs& heads, int64_t start,
                                int64_t first, int64_t count, float* tile) {
  const Row at;
  const int64_t token = first + at.row;
  const int64_t stride = TileStride(args.head_size);
  for (int64_t d = at.thread; d < stride; d += kRowThreads) {
    const bool there = token < count && d < args.head_size;
    tile[at.row * stride + d] =
        there ? LoadAny(heads.data, args.type, start + token * heads.token_stride + d) : 0.0f;
  }
}

__device__ inline float Dot(const float* x, const float* y, int64_t count) {
  float sum = 0;
#pragma unroll 4
  for (int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// sums += weight * the thread's columns of a tile's row.
template <int kColumns>
__device__ inline void AddRow(float weight, const float* row, int64_t head_size,
                              float (&sums)[kColumns]) {
  const Row at;
#pragma unroll
  for (int d = 0; d < kColumns; ++d) {
    if (d * kRowThreads < head_size) sums[d] += weight * row[at.thread + d * kRowThreads];
  }
}

// Sum and maximum over the threads of a row.
__device__ inline float SumOfRow(float value) {
#pragma unroll
  for (int bits = kRowThreads / 2; bits > 0; bits /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, bits);
  }
  return value;
}
__device__ inline float MaxOfRow(float value) {
#pragma unroll
  for (int bits = kRowThreads / 2; bits > 0; bits /= 2) {
    value = Larger(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  return value;
}

__device__ inline bool Sees(const AttentionArgs& args, int64_t batch, int64_t query, int64_t key) {
  if (query >= args.sequence || key >= args.keys) return false;
  if (args.causal) {
    const int64_t before = PositionOf(args.query_places, query) - PositionOf(args.key_places, key);
    if (before < 0 || (args.window > 0 && before >= args.window)) return false;
  }
  if (args.segments == nullptr) return true;
  const int32_t* segments = args.segments + batch * args.tokens;
  return segments[args.query_places.start + query] == segments[args.key_places.start + key];
}

// Whether some query of a tile of `rows` may see some key of another: the same for all threads.
__device__ inline bool TilesMeet(const AttentionArgs& args, int64_t first_query, int64_t first_key,
                                 int64_t rows) {
  if (!args.causal) return true;
  const int64_t queries = args.sequence - first_query < rows ? args.sequence - first_query : rows;
  const int64_t keys = args.keys - first_key < rows ? args.keys - first_key : rows;
  if (args.window > 0 && LargestPosition(args.key_places, first_key, keys) + args.window <=
                             LeastPosition(args.query_places, first_query, queries)) {
    return false;
  }
  return LeastPosition(args.key_places, first_key, keys) <=
         LargestPosition(args.query_places, first_query, queries);
}

// The factor of the dropout of one probability.
__device__ inline float MaskFactor(const ProbabilityMaskArgs& mask, int64_t batch, int64_t head,
                                   int64_t query, int64_t key) {
  if (mask.threshold == 0) return 1.0f;
  const int64_t row = mask.first + batch * mask.heads + head;
  PhiloxWords words(PhiloxKey(mask.state->seed, mask.stream),
                    static_cast<uint64_t>(mask.state->step));
  const auto index = static_cast<uint64_t>((row * mask.sequence + query) * mask.sequence + key);
  return words.At(index) >> 8 >= mask.threshold ? mask.keep_scale : 0.0f;
}

// Calls body with a type that has the head size, rounded up, and the rows of a tile that fit into
// the shared memory of every GPU.
template <int head, int rows>
struct TileShape {
  static constexpr int kHead = head;
  static constexpr int kRows = rows;
  static constexpr int kThreads = rows * kRowThreads;
};
template <typename Body>
Code ForHeadSize(int64_t head_size, const Body& body) {
  if (head_size <= 64) return body(TileShape<64, 32>{});
  if (head_size <= 128) return body(TileShape<128, 32>{});
  return body(TileShape<256, 16>{});
}

// A block per tile of `rows` tokens of each of `heads` heads of each batch row, with so many tiles
// of heads and of pairs in shared memory.
template <typename Shape>
LaunchShape TileBlocks(const AttentionArgs& args, int64_t rows, int64_t heads, int64_t head_tiles,
                       int64_t pair_tiles) {
  constexpr int64_t kRows = Shape::kRows;
  const int64_t tiles = (rows + kRows - 1) / kRows;
  LaunchShape shape = Blocks(tiles * args.batch * heads, Shape::kThreads);
  shape.shared_bytes =
      4 * kRows * (head_tiles * TileStride(args.head_size) + pair_tiles * (kRows + 1));
  return shape;
}

// What such a block is.
struct BlockPlace {
  int64_t batch;
  int64_t head;
  int64_t first;  // token
};
template <typename Shape>
__device__ BlockPlace PlaceOfBlock(int64_t rows, int64_t heads) {
  const int64_t tiles = (rows + Shape::kRows - 1) / Shape::kRows;
  const int64_t row = blockIdx.x / tiles;
  return {row / heads, row % heads, (blockIdx.x - row * tiles) * Shape::kRows};
}

// Stores what the block's rows have summed up: a tile of `to`.
template <int kColumns>
__device__ void StoreRow(const AttentionArgs& args, const HeadsArgs& to, const BlockPlace& place,
                         int64_t rows, const float (&sums)[kColumns]) {
  const Row at;
  const int64_t token = place.first + at.row;
  if (token >= rows) return;
  const int64_t start = HeadStart(to, place.batch, place.head) + token * to.token_stride;
#pragma unroll
  for (int d = 0; d < kColumns; ++d) {
    const int64_t column = at.thread + d * kRowThreads;
    if (column < args.head_size) StoreAny(to.data, args.type, start + column, sums[d]);
  }
}

}  // namespace meshwright::ops::cuda
