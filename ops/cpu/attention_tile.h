// What the forward and the backward pass of attention share: what a query tile sees of a block of
// keys, scratch memory cut into tiles, and the dropout factors of a block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/cpu/attention.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_tile.h"

namespace meshwright::ops::cpu {

// A query tile of one head and one of its blocks of keys.
struct TilePair {
  int64_t batch = 0;
  int64_t head = 0;
  TileRange queries;
  TileRange keys;
  TileSight sight = TileSight::kAll;

  bool diagonal() const { return sight == TileSight::kDiagonal; }
  TileBlock block() const { return {keys.rows, queries.rows, diagonal()}; }
  // The part of a product that the mask leaves, `part` on the diagonal.
  TileMode Mode(TilePart part, bool accumulate, RowQueue* ahead) const {
    return {diagonal() ? part : TilePart::kWhole, accumulate, ahead};
  }
};

// Calls body(block, sight) for the blocks of keys that a tile of queries sees.
template <typename Body>
void ForBlocks(const AttentionTiles& tiles, const TileRange& queries, const Body& body) {
  for (size_t j = 0; j < tiles.keys().size(); ++j) {
    const TileSight sight = tiles.SightOf(queries, tiles.keys()[j]);
    if (sight != TileSight::kNothing) body(j, sight);
  }
}

// Neighbouring rows of one head of a tensor.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t row_stride = 0;
  int64_t rows = 0;
};

template <typename T>
HeadRows<T> RowsOf(const HeadsView<T>& view, int64_t batch, const TileRange& rows, int64_t head) {
  return {view.At(batch, rows.first, head), view.row_stride, rows.rows};
}

// out [rows, PaddedWidth(e)]: the rows in f32, and zeros.
void PackRows(const HeadRows<const float>& from, int64_t e, float* out);
void PackRows(const HeadRows<const uint16_t>& from, int64_t e, float* out);

// The rows in f32: where they are, or packed into `wide`.
inline ConstMatrix FloatRows(const HeadRows<const float>& from, int64_t, float*) {
  return {from.data, from.row_stride, 1};
}
inline ConstMatrix FloatRows(const HeadRows<const uint16_t>& from, int64_t e, float* wide) {
  PackRows(from, e, wide);
  return {wide, PaddedWidth(e), 1};
}

// Writes rows of e values that are `stride` apart in `from`.
void StoreRows(const float* from, int64_t stride, int64_t e, const HeadRows<float>& to);
void StoreRows(const float* from, int64_t stride, int64_t e, const HeadRows<uint16_t>& to);

// The tile that is first met after `index` of a head: its next one or the first of the next head.
struct TilePlace {
  int64_t batch = 0;  // shape.b: there is none
  int64_t head = 0;
  TileRange rows;
};

// Of queries that are blocks of a sequence: none, their tiles are not those of the keys.
inline TilePlace TileAfter(const AttentionShape& shape, const AttentionTiles& tiles, int64_t batch,
                           int64_t head, size_t index) {
  if (!shape.whole()) return {shape.b, 0, {}};
  if (index + 1 < tiles.keys().size()) return {batch, head, tiles.keys()[index + 1]};
  if (head + 1 < shape.h) return {batch, head + 1, tiles.keys()[0]};
  return {batch + 1, 0, tiles.keys()[0]};
}

template <typename T>
void FetchRows(const HeadsView<T>& view, const TilePlace& place, int64_t head, RowQueue& queue) {
  queue.Add(view.At(place.batch, place.rows.first, head), view.row_stride, place.rows.rows);
}

// Queues what the forward pass reads and writes at `place`.
template <typename T>
void FetchForward(const AttentionShape& shape, const AttentionTensors<T>& tensors,
                  const TilePlace& place, RowQueue& queue) {
  if (place.batch == shape.b) return;
  const int64_t group = place.head / shape.heads_per_group();
  FetchRows(tensors.k, place, group, queue);
  FetchRows(tensors.v, place, group, queue);
  FetchRows(tensors.q, place, place.head, queue);
  FetchRows(tensors.o, place, place.head, queue);
}

// The same for the backward pass; dk and dv where they are summed in place.
template <typename T>
void FetchBackward(const AttentionShape& shape, const AttentionGradTensors<T>& tensors,
                   const TilePlace& place, RowQueue& queue) {
  if (place.batch == shape.b) return;
  FetchRows(tensors.q, place, place.head, queue);
  FetchRows(tensors.o, place, place.head, queue);
  FetchRows(tensors.grad, place, place.head, queue);
  FetchRows(tensors.dq, place, place.head, queue);
  const int64_t group = place.head / shape.heads_per_group();
  if (place.head % shape.heads_per_group() != 0) return;  // seen before
  FetchRows(tensors.k, place, group, queue);
  FetchRows(tensors.v, place, group, queue);
  if constexpr (std::is_same_v<T, float>) {
    FetchRows(tensors.dk, place, group, queue);
    FetchRows(tensors.dv, place, group, queue);
  }
}

// Divides the rows of `sums` [queries, width] by their sums and writes o and lse. A query whose
// scores are all -inf gets zeros and lse -inf.
template <typename T>
void FinishForward(const AttentionShape& shape, const AttentionTensors<T>& tensors,
                   const TilePlace& place, const SoftmaxState& state, float* sums) {
  const int64_t width = PaddedWidth(shape.e);
  const float scale = static_cast<float>(shape.scale());
  float* lse = tensors.lse + (place.batch * shape.h + place.head) * shape.s + place.rows.first;
  for (int64_t i = 0; i < place.rows.rows; ++i) {
    const float sum = state.sum[i];
    lse[i] = scale * state.max[i] + std::log(sum);
    float* row = sums + i * width;
    VecScale(row, sum == 0 ? 0.0f : 1.0f / sum, row, shape.e);
  }
  StoreRows(sums, width, shape.e, RowsOf(tensors.o, place.batch, place.rows, place.head));
}

// Hands out consecutive pieces of scratch memory, each at a 64-byte boundary.
class ScratchCursor {
 public:
  explicit ScratchCursor(float* begin) : next_(begin) {}
  float* Take(int64_t count) {
    float* piece = next_;
    next_ += PaddedWidth(count);
    return piece;
  }

 private:
  float* next_;
};

// Scores [keys, kTile] of keys that the query does not see become -inf: those in another segment,
// those before its window, and those behind it where the pair is not a diagonal.
void HideUnseen(const AttentionRun& run, const TilePair& pair, float* scores);

// factors [keys, kTile]: what dropout multiplies the probabilities of the pair with. `scratch`:
// [kTile, kTile].
void DropoutFactors(const AttentionRun& run, const TilePair& pair, float* scratch, float* factors);

}  // namespace meshwright::ops::cpu
