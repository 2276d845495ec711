// attention, for GPUs and shapes that no library serves: one pass over the keys with a softmax that
// is corrected as larger scores appear. In f32, right before fast.
// Source: Dao et al., "FlashAttention", NeurIPS'22, algorithm 1.
#include "ops/cuda/attention_tiles.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

// A row's softmax over the keys so far.
struct Softmax {
  float largest = MinusInfinity();
  float total = 0;
};

// Adds a tile of keys: its probabilities, relative to the largest score and masked, go to `pairs`.
// Returns what everything before must be multiplied with.
template <typename Shape>
__device__ float AddKeys(const AttentionArgs& args, const BlockPlace& place, int64_t first,
                         const float* query, const float* keys, Softmax& softmax, float* pairs) {
  constexpr int kPairs = Shape::kRows / kRowThreads;
  const Row at;
  const int64_t token = place.first + at.row;
  const int64_t position = PositionOf(args.query_places, token);
  float scores[kPairs];
  float larger = softmax.largest;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int key = at.thread + i * kRowThreads;
    scores[i] = MinusInfinity();
    if (!Sees(args, place.batch, token, first + key)) continue;
    scores[i] = args.scale * Dot(query, keys + key * TileStride(args.head_size), args.head_size);
    larger = Larger(larger, scores[i]);
  }
  larger = MaxOfRow(larger);
  const bool blind = larger == MinusInfinity();
  const float correction = blind ? 1.0f : expf(softmax.largest - larger);
  float part = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int key = at.thread + i * kRowThreads;
    float probability = 0;
    if (!blind && scores[i] != MinusInfinity()) probability = expf(scores[i] - larger);
    part += probability;
    if (probability != 0) {
      probability *= MaskFactor(args.mask, place.batch, place.head, position,
                                PositionOf(args.key_places, first + key));
    }
    pairs[key] = probability;
  }
  softmax.total = softmax.total * correction + SumOfRow(part);
  softmax.largest = larger;
  __syncwarp();
  return correction;
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) AttentionKernel(AttentionArgs args) {
  constexpr int kRows = Shape::kRows;
  constexpr int kColumns = Shape::kHead / kRowThreads;
  MW_DYNAMIC_SHARED(float, shared);
  const Row at;
  const int64_t stride = TileStride(args.head_size);
  float* const queries = shared;
  float* const keys = queries + kRows * stride;
  float* const values = keys + kRows * stride;
  float* const pairs = values + kRows * stride + at.row * (kRows + 1);
  const BlockPlace place = PlaceOfBlock<Shape>(args.sequence, args.heads);
  const int64_t kv_head = place.head / (args.heads / args.kv_heads);
  const int64_t query = place.first + at.row;
  LoadTile(args, args.q, HeadStart(args.q, place.batch, place.head), place.first, args.sequence,
           queries);
  Softmax softmax;
  float sums[kColumns] = {};
  for (int64_t first = 0; first < args.keys; first += kRows) {
    if (!TilesMeet(args, place.first, first, kRows)) continue;
    __syncthreads();
    LoadTile(args, args.k, HeadStart(args.k, place.batch, kv_head), first, args.keys, keys);
    LoadTile(args, args.v, HeadStart(args.v, place.batch, kv_head), first, args.keys, values);
    __syncthreads();
    const float correction =
        AddKeys<Shape>(args, place, first, queries + at.row * stride, keys, softmax, pairs);
#pragma unroll
    for (int d = 0; d < kColumns; ++d) sums[d] *= correction;
#pragma unroll 1
    for (int64_t j = 0; j < kRows; ++j) {
      if (pairs[j] != 0) AddRow(pairs[j], values + j * stride, args.head_size, sums);
    }
  }
  const bool blind = softmax.largest == MinusInfinity();
#pragma unroll
  for (int d = 0; d < kColumns; ++d) sums[d] = blind ? 0.0f : sums[d] / softmax.total;
  StoreRow(args, args.o, place, args.sequence, sums);
  if (at.thread != 0 || query >= args.sequence) return;
  args.lse[(place.batch * args.heads + place.head) * args.sequence + query] =
      blind ? softmax.largest : softmax.largest + logf(softmax.total);
}

}  // namespace

Code launches::Attention(const AttentionArgs& args, StreamHandle stream) {
  return ForHeadSize(args.head_size, [&](auto shape) {
    using Shape = decltype(shape);
    return Launch(stream, TileBlocks<Shape>(args, args.sequence, args.heads, 3, 1),
                  AttentionKernel<Shape>, args);
  });
}

}  // namespace meshwright::ops::cuda
