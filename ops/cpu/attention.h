// Attention over strided tensors of f32 or bf16 (as uint16_t), forward and backward, one tile of
// kTile queries at a time; it computes in f32.
//
// Idea: o = softmax(q k^T) v block of keys by block of keys. The forward pass keeps the maximum and
// the sum of each query so far and rescales what it has summed when the maximum grows; the backward
// pass computes the probabilities again from lse. Nothing of size [s, s] or [kTile, s] exists: a
// thread needs a few tiles of scratch. Blocks that a mask hides are not visited.
//
// Every tensor has strides of its own, so that q, k and v may be slices of one tensor, and so may
// their gradients. An output must not overlap an input. Deterministic: a tile of o, and the
// gradients of one kv head of one batch row, are the work of one thread, in a fixed order. Source:
// FlashAttention-2, 2023, algorithms 1 and 2; here the backward pass has queries in the outer loop,
// as the forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention_shape.h"
#include "ops/dropout_mask.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cpu {

// [batch, row, head, e] in memory; the e values of a head are neighbours. Strides in elements.
template <typename T>
struct HeadsView {
  T* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  T* At(int64_t batch, int64_t row, int64_t head) const {
    return data + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

template <typename T>
struct AttentionTensors {
  HeadsView<const T> q;  // [b, s, h, e]
  HeadsView<const T> k;  // [b, keys, g, e]
  HeadsView<const T> v;  // as k
  HeadsView<T> o;        // as q
  float* lse = nullptr;  // [b, h, s], dense
};

template <typename T>
struct AttentionGradTensors {
  HeadsView<const T> q;
  HeadsView<const T> k;
  HeadsView<const T> v;
  HeadsView<const T> o;
  HeadsView<const T> grad;  // of o
  const float* lse = nullptr;
  HeadsView<T> dq;
  HeadsView<T> dk;
  HeadsView<T> dv;
};

// At most kTile neighbouring rows whose tokens are neighbours in the sequence, too.
struct TileRange {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t position = 0;  // of the first row's token
};

// What a tile of queries sees of a block of keys. kDiagonal: query i the keys up to i; kSome: up to
// another one. Within a window it is less of the ones at its end.
enum class TileSight : uint8_t { kNothing, kDiagonal, kSome, kAll };

// The rows of queries and of keys as tiles.
class AttentionTiles {
 public:
  explicit AttentionTiles(const AttentionShape& shape);

  const std::vector<TileRange>& queries() const { return queries_; }
  const std::vector<TileRange>& keys() const { return keys_; }
  TileSight SightOf(const TileRange& queries, const TileRange& keys) const;
  // The first tile of queries that sees a block; queries().size(): none does.
  size_t FirstSeer(size_t block) const { return first_seer_[block]; }

 private:
  bool causal_ = true;
  int64_t window_ = 0;
  std::vector<TileRange> queries_;
  std::vector<TileRange> keys_;
  std::vector<size_t> first_seer_;
};

// Everything about attention that is known when a kernel is made.
struct AttentionCase {
  AttentionCase(const AttentionShape& of, const AttentionDropout& with)
      : shape(of), dropout(with), tiles(of) {}

  AttentionShape shape;
  AttentionDropout dropout;
  AttentionTiles tiles;
};

// What all tiles of one run share.
struct AttentionRun {
  AttentionRun(const AttentionCase& of, const RunContext& in, const int32_t* documents)
      : shape(of.shape), dropout(of.dropout), tiles(of.tiles), context(in), segments(documents) {}

  const AttentionShape& shape;
  const AttentionDropout& dropout;
  const AttentionTiles& tiles;
  const RunContext& context;
  const int32_t* segments = nullptr;  // [b, tokens], or null: all of a row is one
};

// The operand behind the first `count`, if it is there.
inline const int32_t* SegmentsOf(Inputs inputs, size_t count) {
  return inputs.size() > count ? inputs[count].as<int32_t>() : nullptr;
}

// Writes o and lse. T: float or uint16_t.
template <typename T>
void RunAttention(const AttentionRun& run, const AttentionTensors<T>& tensors);

// Writes dq, dk and dv.
template <typename T>
void RunAttentionGrad(const AttentionRun& run, const AttentionGradTensors<T>& tensors);

extern template void RunAttention(const AttentionRun&, const AttentionTensors<float>&);
extern template void RunAttention(const AttentionRun&, const AttentionTensors<uint16_t>&);
extern template void RunAttentionGrad(const AttentionRun&, const AttentionGradTensors<float>&);
extern template void RunAttentionGrad(const AttentionRun&, const AttentionGradTensors<uint16_t>&);

}  // namespace meshwright::ops::cpu
