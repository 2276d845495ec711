// attention for f32: tiles of 64 query rows of one head. Scores of a tile live in per-thread
// scratch; a causal tile only multiplies the columns up to its last row.
#include <algorithm>
#include <cmath>

#include "ops/attention_shape.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/mask_row.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_rows.h"
#include "ops/dropout_mask.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kTileRows = 64;

struct Tile {
  int64_t first = 0;  // query row
  int64_t rows = 0;
  int64_t columns = 0;  // keys that any of its rows sees
};

// What all tiles of one run share.
struct Attention {
  const AttentionShape& shape;
  const AttentionDropout& dropout;
  const RunContext& context;

  // The visible part of a row of [s, s] through the mask.
  void Mask(int64_t batch, int64_t head, int64_t position, float* row) const {
    const uint64_t start = dropout.RowStart(batch, head, position, context.microbatch);
    MaskRow(dropout.mask(), context, start, row, row, shape.Visible(position));
  }
};

Tile TileAt(const AttentionShape& shape, int64_t index) {
  Tile tile;
  tile.first = index * kTileRows;
  tile.rows = std::min(kTileRows, shape.s - tile.first);
  tile.columns = shape.causal ? tile.first + tile.rows : shape.s;
  return tile;
}

// Turns scores (q.k, not scaled) into exp(scale * score - max) and zeros the keys that the row does
// not see. Writes lse; returns the sum of the row.
float SoftmaxRow(const AttentionShape& shape, int64_t position, int64_t columns, float* scores,
                 float* lse) {
  const float scale = static_cast<float>(shape.scale());
  const int64_t visible = shape.Visible(position);
  const float shift = scale * VecMax(scores, visible);
  const float sum = VecExp(scores, scale, shift, scores, visible);
  std::fill(scores + visible, scores + columns, 0.0f);
  *lse = static_cast<float>(static_cast<double>(shift) + std::log(static_cast<double>(sum)));
  return sum;
}

void ForwardTile(const Attention& run, int64_t head_index, const Tile& tile, Inputs inputs,
                 Outputs outputs) {
  const AttentionShape& shape = run.shape;
  const int64_t batch = head_index / shape.h;
  const int64_t head = head_index % shape.h;
  const int64_t query = shape.QueryOffset(batch, head) + tile.first * shape.q_stride();
  const int64_t key = shape.KeyOffset(batch, head / shape.heads_per_group());
  float* scores = ThreadScratch(tile.rows * tile.columns);
  const ConstMatrix q{inputs[0].as<float>() + query, shape.q_stride(), 1};
  const ConstMatrix k{inputs[1].as<float>() + key, shape.kv_stride(), 1};
  const ConstMatrix v{inputs[2].as<float>() + key, shape.kv_stride(), 1};
  Gemm({tile.rows, tile.columns, shape.e}, q, Transposed(k), {scores, tile.columns, 1}, false);
  float sums[kTileRows];
  float* lse = outputs[1].as<float>() + head_index * shape.s + tile.first;
  for (int64_t i = 0; i < tile.rows; ++i) {
    float* row = scores + i * tile.columns;
    sums[i] = SoftmaxRow(shape, tile.first + i, tile.columns, row, lse + i);
    if (run.dropout.active()) run.Mask(batch, head, tile.first + i, row);
  }
  float* o = outputs[0].as<float>() + query;
  Gemm({tile.rows, shape.e, tile.columns}, {scores, tile.columns, 1}, v, {o, shape.q_stride(), 1},
       false);
  for (int64_t i = 0; i < tile.rows; ++i) {
    VecScale(o + i * shape.q_stride(), 1.0f / sums[i], o + i * shape.q_stride(), shape.e);
  }
}

}  // namespace

KernelResult MakeAttention(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  const int64_t tiles = (shape.s + kTileRows - 1) / kTileRows;
  return MakeFunctionKernel(
      [shape, dropout, tiles](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const Attention run{shape, dropout, context};
        ParallelItems(context, shape.b * shape.h * tiles, [&](int64_t item) {
          ForwardTile(run, item / tiles, TileAt(shape, item % tiles), inputs, outputs);
        });
        return {};
      });
}

namespace {

// One kv head of one batch row: all its query heads and tiles in order, so that dk and dv add up in
// a fixed order.
class GradGroup {
 public:
  GradGroup(const Attention& run, int64_t batch, int64_t group, Inputs inputs, Outputs outputs)
      : run_(run),
        shape_(run.shape),
        batch_(batch),
        group_(group),
        inputs_(inputs),
        outputs_(outputs) {}

  void Run() {
    const int64_t key = shape_.KeyOffset(batch_, group_);
    for (int64_t j = 0; j < shape_.s; ++j) {
      std::fill_n(outputs_[1].as<float>() + key + j * shape_.kv_stride(), shape_.e, 0.0f);
      std::fill_n(outputs_[2].as<float>() + key + j * shape_.kv_stride(), shape_.e, 0.0f);
    }
    for (int64_t r = 0; r < shape_.heads_per_group(); ++r) {
      const int64_t head = group_ * shape_.heads_per_group() + r;
      for (int64_t t = 0; t * kTileRows < shape_.s; ++t) RunTile(head, TileAt(shape_, t));
    }
  }

 private:
  ConstMatrix Query(size_t input, int64_t offset) const {
    return {inputs_[input].as<float>() + offset, shape_.q_stride(), 1};
  }
  ConstMatrix Key(size_t input) const {
    return {inputs_[input].as<float>() + shape_.KeyOffset(batch_, group_), shape_.kv_stride(), 1};
  }

  void RunTile(int64_t head, const Tile& tile) {
    const int64_t query = shape_.QueryOffset(batch_, head) + tile.first * shape_.q_stride();
    const int64_t key = shape_.KeyOffset(batch_, group_);
    const int64_t size = tile.rows * tile.columns;
    float* p = ThreadScratch(2 * size);
    float* ds = p + size;
    const GemmSize scores{tile.rows, tile.columns, shape_.e};
    Gemm(scores, Query(0, query), Transposed(Key(1)), {p, tile.columns, 1}, false);
    Gemm(scores, Query(5, query), Transposed(Key(2)), {ds, tile.columns, 1}, false);
    ScoreGradients(head, tile, query, p, ds);
    const ConstMatrix p_matrix{p, tile.columns, 1};
    const ConstMatrix ds_matrix{ds, tile.columns, 1};
    const GemmSize per_key{tile.columns, shape_.e, tile.rows};
    Gemm(per_key, Transposed(p_matrix), Query(5, query),
         {outputs_[2].as<float>() + key, shape_.kv_stride(), 1}, true);
    Gemm(per_key, Transposed(ds_matrix), Query(0, query),
         {outputs_[1].as<float>() + key, shape_.kv_stride(), 1}, true);
    Gemm({tile.rows, shape_.e, tile.columns}, ds_matrix, Key(1),
         {outputs_[0].as<float>() + query, shape_.q_stride(), 1}, false);
  }

  // p: scores -> probabilities, masked as dv needs them; ds: do.v -> gradient of the scores.
  void ScoreGradients(int64_t head, const Tile& tile, int64_t query, float* p, float* ds) const {
    const float scale = static_cast<float>(shape_.scale());
    const float* lse = inputs_[4].as<float>() + (batch_ * shape_.h + head) * shape_.s + tile.first;
    for (int64_t i = 0; i < tile.rows; ++i) {
      const int64_t token = query + i * shape_.q_stride();
      const int64_t visible = shape_.Visible(tile.first + i);
      const float d =
          VecDot(inputs_[5].as<float>() + token, inputs_[3].as<float>() + token, shape_.e);
      float* row = p + i * tile.columns;
      float* grad = ds + i * tile.columns;
      VecExp(row, scale, lse[i], row, visible);
      if (run_.dropout.active()) run_.Mask(batch_, head, tile.first + i, grad);
      VecSoftmaxGrad(row, d, scale, grad, visible);
      if (run_.dropout.active()) run_.Mask(batch_, head, tile.first + i, row);
      std::fill(row + visible, row + tile.columns, 0.0f);
      std::fill(grad + visible, grad + tile.columns, 0.0f);
    }
  }

  const Attention& run_;
  const AttentionShape& shape_;
  int64_t batch_;
  int64_t group_;
  Inputs inputs_;
  Outputs outputs_;
};

}  // namespace

KernelResult MakeAttentionGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  return MakeFunctionKernel(
      [shape, dropout](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const Attention run{shape, dropout, context};
        ParallelItems(context, shape.b * shape.g, [&](int64_t item) {
          GradGroup(run, item / shape.g, item % shape.g, inputs, outputs).Run();
        });
        return {};
      });
}

}  // namespace meshwright::ops::cpu
