// The gradient of attention: dq by blocks of queries, dk and dv by blocks of keys, so that every
// sum has one owner and a fixed order. Probabilities come back from lse.
//
// With D = do.o, the mask's factor m and p = exp(scale * q.k - lse):
//   dv[j] = sum p m do,  ds = p (m do.v - D) scale,  dq[i] = sum ds k,  dk[j] = sum ds q.
#include "ops/cuda/attention_tiles.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int64_t kThreads = 256;

// D of every query: a warp each.
__global__ void RowProductsKernel(AttentionGradArgs args) {
  const AttentionArgs& forward = args.forward;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= forward.batch * forward.heads * forward.sequence) return;
  const int64_t token = row % forward.sequence;
  const int64_t head = row / forward.sequence % forward.heads;
  const int64_t batch = row / forward.sequence / forward.heads;
  const int64_t o = HeadStart(forward.o, batch, head) + token * forward.o.token_stride;
  const int64_t d_o = HeadStart(args.d_o, batch, head) + token * args.d_o.token_stride;
  float sum = 0;
  for (int64_t d = threadIdx.x; d < forward.head_size; d += kWarp) {
    sum += LoadAny(forward.o.data, forward.type, o + d) *
           LoadAny(args.d_o.data, forward.type, d_o + d);
  }
  sum = WarpSum(sum);
  if (threadIdx.x == 0) args.scratch[row] = sum;
}

// The four tiles and the pairs of a block in shared memory.
template <typename Shape>
struct Tiles {
  int64_t stride;
  float* queries;
  float* d_o;
  float* keys;
  float* values;
  float* weights;  // p m
  float* slopes;   // ds

  __device__ explicit Tiles(const AttentionArgs& args) : stride(TileStride(args.head_size)) {
    MW_DYNAMIC_SHARED(float, shared);
    queries = shared;
    d_o = queries + Shape::kRows * stride;
    keys = d_o + Shape::kRows * stride;
    values = keys + Shape::kRows * stride;
    weights = values + Shape::kRows * stride;
    slopes = weights + Shape::kRows * (Shape::kRows + 1);
  }

  __device__ void LoadQueries(const AttentionGradArgs& args, const BlockPlace& query) const {
    LoadTile(args.forward, args.forward.q, HeadStart(args.forward.q, query.batch, query.head),
             query.first, args.forward.sequence, queries);
    LoadTile(args.forward, args.d_o, HeadStart(args.d_o, query.batch, query.head), query.first,
             args.forward.sequence, d_o);
  }
  __device__ void LoadKeys(const AttentionGradArgs& args, const BlockPlace& key) const {
    LoadTile(args.forward, args.forward.k, HeadStart(args.forward.k, key.batch, key.head),
             key.first, args.forward.keys, keys);
    LoadTile(args.forward, args.forward.v, HeadStart(args.forward.v, key.batch, key.head),
             key.first, args.forward.keys, values);
  }

  // Fills weights and slopes, [query][key].
  __device__ void MakePairs(const AttentionGradArgs& args, const BlockPlace& query,
                            int64_t first_key) const {
    const AttentionArgs& forward = args.forward;
    const Row at;
    const int64_t token = query.first + at.row;
    const int64_t row = (query.batch * forward.heads + query.head) * forward.sequence + token;
    const bool inside = token < forward.sequence;
    const float lse = inside ? forward.lse[row] : MinusInfinity();
    const float product = inside ? args.scratch[row] : 0.0f;
    for (int key = at.thread; key < Shape::kRows; key += kRowThreads) {
      float weight = 0;
      float slope = 0;
      if (lse != MinusInfinity() && Sees(forward, query.batch, token, first_key + key)) {
        const float score =
            forward.scale * Dot(queries + at.row * stride, keys + key * stride, forward.head_size);
        const float p = expf(score - lse);
        const float factor = MaskFactor(forward.mask, query.batch, query.head,
                                        PositionOf(forward.query_places, token),
                                        PositionOf(forward.key_places, first_key + key));
        const float dp =
            factor * Dot(d_o + at.row * stride, values + key * stride, forward.head_size);
        weight = factor * p;
        slope = p * (dp - product) * forward.scale;
      }
      weights[at.row * (Shape::kRows + 1) + key] = weight;
      slopes[at.row * (Shape::kRows + 1) + key] = slope;
    }
  }
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) QueryGradKernel(AttentionGradArgs args) {
  constexpr int kRows = Shape::kRows;
  constexpr int kColumns = Shape::kHead / kRowThreads;
  const AttentionArgs& forward = args.forward;
  const Tiles<Shape> tiles(forward);
  const BlockPlace query = PlaceOfBlock<Shape>(forward.sequence, forward.heads);
  BlockPlace key{query.batch, query.head / (forward.heads / forward.kv_heads), 0};
  const Row at;
  float sums[kColumns] = {};
  tiles.LoadQueries(args, query);
  for (; key.first < forward.keys; key.first += kRows) {
    if (!TilesMeet(forward, query.first, key.first, kRows)) continue;
    __syncthreads();
    tiles.LoadKeys(args, key);
    __syncthreads();
    tiles.MakePairs(args, query, key.first);
    __syncwarp();
#pragma unroll 1
    for (int64_t j = 0; j < kRows; ++j) {
      const float slope = tiles.slopes[at.row * (kRows + 1) + j];
      if (slope != 0) AddRow(slope, tiles.keys + j * tiles.stride, forward.head_size, sums);
    }
  }
  StoreRow(forward, args.dq, query, forward.sequence, sums);
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) KeyGradKernel(AttentionGradArgs args) {
  constexpr int kRows = Shape::kRows;
  constexpr int kColumns = Shape::kHead / kRowThreads;
  const AttentionArgs& forward = args.forward;
  const Tiles<Shape> tiles(forward);
  const BlockPlace key = PlaceOfBlock<Shape>(forward.keys, forward.kv_heads);
  const int64_t group = forward.heads / forward.kv_heads;
  const Row at;
  float dk[kColumns] = {};
  float dv[kColumns] = {};
  tiles.LoadKeys(args, key);
  for (int64_t i = 0; i < group; ++i) {
    BlockPlace query{key.batch, key.head * group + i, 0};
    for (; query.first < forward.sequence; query.first += kRows) {
      if (!TilesMeet(forward, query.first, key.first, kRows)) continue;
      __syncthreads();
      tiles.LoadQueries(args, query);
      __syncthreads();
      tiles.MakePairs(args, query, key.first);
      __syncthreads();
#pragma unroll 1
      for (int64_t j = 0; j < kRows; ++j) {
        const int64_t pair = j * (kRows + 1) + at.row;
        if (tiles.weights[pair] == 0 && tiles.slopes[pair] == 0) continue;
        AddRow(tiles.weights[pair], tiles.d_o + j * tiles.stride, forward.head_size, dv);
        AddRow(tiles.slopes[pair], tiles.queries + j * tiles.stride, forward.head_size, dk);
      }
    }
  }
  StoreRow(forward, args.dk, key, forward.keys, dk);
  StoreRow(forward, args.dv, key, forward.keys, dv);
}

}  // namespace

Code launches::AttentionGrad(const AttentionGradArgs& args, StreamHandle stream) {
  const AttentionArgs& forward = args.forward;
  const int64_t rows = forward.batch * forward.heads * forward.sequence;
  constexpr int64_t kRowsOfABlock = kThreads / kWarp;
  const LaunchShape by_row{
      dim3{static_cast<unsigned>((rows + kRowsOfABlock - 1) / kRowsOfABlock), 1, 1},
      dim3{kWarp, kRowsOfABlock, 1}, 0};
  const Code code = Launch(stream, by_row, RowProductsKernel, args);
  if (code != 0) return code;
  return ForHeadSize(forward.head_size, [&](auto shape) {
    using Shape = decltype(shape);
    const Code queries =
        Launch(stream, TileBlocks<Shape>(forward, forward.sequence, forward.heads, 4, 2),
               QueryGradKernel<Shape>, args);
    if (queries != 0) return queries;
    return Launch(stream, TileBlocks<Shape>(forward, forward.keys, forward.kv_heads, 4, 2),
                  KeyGradKernel<Shape>, args);
  });
}

}  // namespace meshwright::ops::cuda
