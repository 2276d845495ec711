// Backward pass of attention: one work item per kv head of a batch row, which adds up dk and dv
// over its query heads and tiles in order.
//
// With p = exp(scale * q.k - lse), D = do.o and the dropout factors m: dv = (m p)^T do,
// ds = p (m (do v^T) - D) scale, dq = ds k, dk = ds^T q.
#include "ops/cpu/attention_tile.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

class GradGroup {
 public:
  GradGroup(const AttentionRun& run, const AttentionGradTensors& tensors, int64_t batch,
            int64_t group)
      : run_(run),
        shape_(run.shape),
        tensors_(tensors),
        batch_(batch),
        group_(group),
        width_(PaddedWidth(run.shape.e)),
        ahead_(run.shape.e) {
    ScratchCursor scratch(ThreadScratch(ScratchFloats()));
    q_columns_ = scratch.Take(shape_.e * kTile);
    grad_columns_ = scratch.Take(shape_.e * kTile);
    q_ = scratch.Take(kTile * width_);
    grad_ = scratch.Take(kTile * width_);
    k_ = scratch.Take(kTile * width_);
    p_ = scratch.Take(kTile * kTile);
    ds_ = scratch.Take(kTile * kTile);
    lse_ = scratch.Take(kTile);
    d_ = scratch.Take(kTile);
    if (!run.dropout.active()) return;
    factors_ = scratch.Take(kTile * kTile);
    mask_ = scratch.Take(kTile * kTile);
  }

  void Run() {
    const int64_t heads = shape_.heads_per_group();
    for (int64_t head = group_ * heads; head < (group_ + 1) * heads; ++head) {
      for (int64_t i = 0; i < TileCount(shape_); ++i) RunTile(head, i);
    }
  }

 private:
  int64_t ScratchFloats() const {
    const int64_t rows = 2 * kTile;  // lse, D
    const int64_t dropout = run_.dropout.active() ? 2 * kTile * kTile : 0;
    return kTile * (2 * PaddedWidth(shape_.e) + 3 * width_ + 2 * kTile) + rows + dropout;
  }

  void RunTile(int64_t head, int64_t index) {
    const TileRange queries = TileAt(shape_, index);
    LoadQueries(head, queries);
    for (int64_t j = 0; j < BlockCount(shape_, index); ++j) {
      if (MeetsFirst(shape_, index, j)) FetchAfter(TileAfter(shape_, batch_, head, j));
      const TilePair pair{batch_, head, queries, TileAt(shape_, j), shape_.causal && j == index};
      ScoreGradients(pair);
      // The first tile that sees a block starts its sums.
      const bool starts_block =
          head == group_ * shape_.heads_per_group() && MeetsFirst(shape_, index, j);
      AddGradients(pair, !starts_block);
    }
  }

  void FetchAfter(const TilePlace& place) {
    if (place.batch == shape_.b) return;
    FetchRows(tensors_.q, place, place.head, ahead_);
    FetchRows(tensors_.o, place, place.head, ahead_);
    FetchRows(tensors_.grad, place, place.head, ahead_);
    FetchRows(tensors_.dq, place, place.head, ahead_);
    const int64_t group = place.head / shape_.heads_per_group();
    if (place.head % shape_.heads_per_group() != 0) return;  // seen before
    FetchRows(tensors_.k, place, group, ahead_);
    FetchRows(tensors_.v, place, group, ahead_);
    FetchRows(tensors_.dk, place, group, ahead_);
    FetchRows(tensors_.dv, place, group, ahead_);
  }

  // Everything about a tile of queries that its blocks of keys share.
  void LoadQueries(int64_t head, const TileRange& queries) {
    const ConstMatrix q = RowsOf(tensors_.q, batch_, queries, head);
    const ConstMatrix grad = RowsOf(tensors_.grad, batch_, queries, head);
    VecTileTranspose(q, queries.rows, shape_.e, q_columns_);
    VecTileTranspose(grad, queries.rows, shape_.e, grad_columns_);
    VecTilePack(q, queries.rows, shape_.e, q_);
    VecTilePack(grad, queries.rows, shape_.e, grad_);
    const float* lse = tensors_.lse + (batch_ * shape_.h + head) * shape_.s + queries.first;
    std::fill_n(std::copy_n(lse, queries.rows, lse_), kTile - queries.rows, 0.0f);
    std::fill_n(d_, kTile, 0.0f);
    for (int64_t i = 0; i < queries.rows; ++i) {
      const float* o = tensors_.o.At(batch_, queries.first + i, head);
      d_[i] = VecDot(grad.data + i * grad.row_stride, o, shape_.e);
    }
  }

  // p: probabilities, masked as dv needs them; ds: gradient of the scores.
  void ScoreGradients(const TilePair& pair) {
    const ConstMatrix k = RowsOf(tensors_.k, batch_, pair.keys, group_);
    const ConstMatrix v = RowsOf(tensors_.v, batch_, pair.keys, group_);
    const GemmSize size{pair.keys.rows, PaddedWidth(pair.queries.rows), shape_.e};
    const TileMode mode = pair.Mode(TilePart::kColumnsFromRow, false, &ahead_);
    VecTileProduct(size, k, {q_columns_, kTile, 1}, {p_, kTile, 1}, mode);
    VecTileProduct(size, v, {grad_columns_, kTile, 1}, {ds_, kTile, 1}, mode);
    if (run_.dropout.active()) DropoutFactors(run_, pair, mask_, factors_);
    VecTileScoreGrad(pair.block(),
                     {static_cast<float>(shape_.scale()), lse_, d_, factors_, p_, ds_});
  }

  void AddGradients(const TilePair& pair, bool accumulate) {
    const HeadsView<float>& dk = tensors_.dk;
    const HeadsView<float>& dv = tensors_.dv;
    const GemmSize per_key{pair.keys.rows, shape_.e, pair.queries.rows};
    const TileMode from_row = pair.Mode(TilePart::kDepthFromRow, accumulate, &ahead_);
    VecTileProduct(per_key, {p_, kTile, 1}, {grad_, width_, 1},
                   {dv.At(batch_, pair.keys.first, group_), dv.row_stride, 1}, from_row);
    VecTileProduct(per_key, {ds_, kTile, 1}, {q_, width_, 1},
                   {dk.At(batch_, pair.keys.first, group_), dk.row_stride, 1}, from_row);
    VecTilePack(RowsOf(tensors_.k, batch_, pair.keys, group_), pair.keys.rows, shape_.e, k_);
    const HeadsView<float>& dq = tensors_.dq;
    VecTileProduct({pair.queries.rows, shape_.e, pair.keys.rows}, {ds_, 1, kTile}, {k_, width_, 1},
                   {dq.At(batch_, pair.queries.first, pair.head), dq.row_stride, 1},
                   pair.Mode(TilePart::kDepthToRow, pair.keys.first > 0, &ahead_));
  }

  const AttentionRun& run_;
  const AttentionShape& shape_;
  const AttentionGradTensors& tensors_;
  const int64_t batch_;
  const int64_t group_;
  const int64_t width_;  // of a row of q, do and k in scratch
  RowQueue ahead_;
  float* q_columns_ = nullptr;     // [e, kTile]
  float* grad_columns_ = nullptr;  // [e, kTile]
  float* q_ = nullptr;             // [queries, width]
  float* grad_ = nullptr;          // [queries, width]
  float* k_ = nullptr;             // [keys, width]
  float* p_ = nullptr;             // [keys, kTile]
  float* ds_ = nullptr;            // [keys, kTile]
  float* lse_ = nullptr;           // [kTile]
  float* d_ = nullptr;             // [kTile]
  float* factors_ = nullptr;       // [keys, kTile], null without dropout
  float* mask_ = nullptr;          // [queries, kTile]
};

}  // namespace

void RunAttentionGrad(const AttentionRun& run, const AttentionGradTensors& tensors) {
  ParallelItems(run.context, run.shape.b * run.shape.g, [&](int64_t item) {
    GradGroup(run, tensors, item / run.shape.g, item % run.shape.g).Run();
  });
}

}  // namespace meshwright::ops::cpu
