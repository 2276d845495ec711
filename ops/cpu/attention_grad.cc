// Backward pass of attention: one work item per kv head of a batch row, which adds up dk and dv
// over its query heads and tiles in order.
//
// With p = exp(scale * q.k - lse), D = do.o and the dropout factors m: dv = (m p)^T do,
// ds = p (m (do v^T) - D) scale, dq = ds k, dk = ds^T q.
#include <algorithm>
#include <type_traits>

#include "ops/cpu/attention_half.h"
#include "ops/cpu/attention_tile.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

template <typename T>
class GradGroup {
 public:
  GradGroup(const AttentionRun& run, const AttentionGradTensors<T>& tensors, int64_t batch,
            int64_t group)
      : run_(run),
        shape_(run.shape),
        tensors_(tensors),
        batch_(batch),
        group_(group),
        width_(PaddedWidth(run.shape.e)),
        ahead_(run.shape.e * static_cast<int64_t>(sizeof(T))) {
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
    TakeSums(scratch);
    if (!run.dropout.active()) return;
    factors_ = scratch.Take(kTile * kTile);
    mask_ = scratch.Take(kTile * kTile);
  }

  void Run() {
    const int64_t heads = shape_.heads_per_group();
    for (int64_t head = group_ * heads; head < (group_ + 1) * heads; ++head) {
      for (size_t i = 0; i < run_.tiles.queries().size(); ++i) RunTile(head, i);
    }
    ClearUnseen();
    if constexpr (kNarrow) {
      const TileRange all{0, shape_.keys};
      StoreRows(dk_.data, width_, shape_.e, RowsOf(tensors_.dk, batch_, all, group_));
      StoreRows(dv_.data, width_, shape_.e, RowsOf(tensors_.dv, batch_, all, group_));
    }
  }

 private:
  // Gradients are summed in f32: in their own memory, or before they are rounded in scratch.
  static constexpr bool kNarrow = !std::is_same_v<T, float>;

  // Gradients of keys that no query sees.
  void ClearUnseen() {
    for (size_t j = 0; j < run_.tiles.keys().size(); ++j) {
      if (run_.tiles.FirstSeer(j) < run_.tiles.queries().size()) continue;
      const TileRange& unseen = run_.tiles.keys()[j];
      Clear(SumsOf(tensors_.dk, dk_, 0, unseen.first, group_), unseen.rows);
      Clear(SumsOf(tensors_.dv, dv_, 0, unseen.first, group_), unseen.rows);
    }
  }

  void Clear(const Matrix& sums, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(sums.data + i * sums.row_stride, shape_.e, 0.0f);
  }

  void TakeSums(ScratchCursor& scratch) {
    if constexpr (kNarrow) {
      wide_ = scratch.Take(kTile * width_);
      dq_ = {scratch.Take(kTile * width_), width_, 1};
      dk_ = {scratch.Take(shape_.keys * width_), width_, 1};
      dv_ = {scratch.Take(shape_.keys * width_), width_, 1};
    }
  }

  // Where dq, dk or dv of some rows is summed; `sums` are those of row `first` on.
  Matrix SumsOf(const HeadsView<T>& view, const Matrix& sums, int64_t first, int64_t row,
                int64_t head) const {
    if constexpr (kNarrow) {
      return {sums.data + (row - first) * width_, width_, 1};
    } else {
      return {view.At(batch_, row, head), view.row_stride, 1};
    }
  }

  int64_t ScratchFloats() const {
    const int64_t rows = 2 * kTile + (kNarrow ? 2 * (kTile + shape_.keys) * width_ : 0);
    const int64_t dropout = run_.dropout.active() ? 2 * kTile * kTile : 0;
    return kTile * (2 * PaddedWidth(shape_.e) + 3 * width_ + 2 * kTile) + rows + dropout;
  }

  void RunTile(int64_t head, size_t index) {
    const TileRange queries = run_.tiles.queries()[index];
    LoadQueries(head, queries);
    bool first = true;
    ForBlocks(run_.tiles, queries, [&](size_t j, TileSight sight) {
      const bool meets_first = run_.tiles.FirstSeer(j) == index;
      if (meets_first) {
        FetchBackward(shape_, tensors_, TileAfter(shape_, run_.tiles, batch_, head, j), ahead_);
      }
      const TilePair pair{batch_, head, queries, run_.tiles.keys()[j], sight};
      ScoreGradients(pair);
      // The first tile that sees a block starts its sums.
      const bool starts_block = head == group_ * shape_.heads_per_group() && meets_first;
      AddGradients(pair, {.keys = !starts_block, .queries = !first});
      first = false;
    });
    if (first) Clear(SumsOf(tensors_.dq, dq_, queries.first, queries.first, head), queries.rows);
    if constexpr (kNarrow) {
      StoreRows(dq_.data, width_, shape_.e, RowsOf(tensors_.dq, batch_, queries, head));
    }
  }

  // Everything about a tile of queries that its blocks of keys share.
  void LoadQueries(int64_t head, const TileRange& queries) {
    PackRows(RowsOf(tensors_.q, batch_, queries, head), shape_.e, q_);
    PackRows(RowsOf(tensors_.grad, batch_, queries, head), shape_.e, grad_);
    VecTileTranspose({q_, width_, 1}, queries.rows, shape_.e, q_columns_);
    VecTileTranspose({grad_, width_, 1}, queries.rows, shape_.e, grad_columns_);
    const float* lse = tensors_.lse + (batch_ * shape_.h + head) * shape_.s + queries.first;
    std::fill_n(std::copy_n(lse, queries.rows, lse_), kTile - queries.rows, 0.0f);
    std::fill_n(d_, kTile, 0.0f);
    const ConstMatrix o = FloatRows(RowsOf(tensors_.o, batch_, queries, head), shape_.e, wide_);
    for (int64_t i = 0; i < queries.rows; ++i) {
      d_[i] = VecDot(grad_ + i * width_, o.data + i * o.row_stride, shape_.e);
    }
  }

  // p: probabilities, masked as dv needs them; ds: gradient of the scores.
  void ScoreGradients(const TilePair& pair) {
    PackRows(RowsOf(tensors_.k, batch_, pair.keys, group_), shape_.e, k_);
    const GemmSize size{pair.keys.rows, PaddedWidth(pair.queries.rows), shape_.e};
    const TileMode mode = pair.Mode(TilePart::kColumnsFromRow, false, &ahead_);
    VecTileProduct(size, {k_, width_, 1}, {q_columns_, kTile, 1}, {p_, kTile, 1}, mode);
    const ConstMatrix v = FloatRows(RowsOf(tensors_.v, batch_, pair.keys, group_), shape_.e, wide_);
    VecTileProduct(size, v, {grad_columns_, kTile, 1}, {ds_, kTile, 1}, mode);
    if (run_.dropout.active()) DropoutFactors(run_, pair, mask_, factors_);
    HideUnseen(run_, pair, p_);
    VecTileScoreGrad(pair.block(),
                     {static_cast<float>(shape_.scale()), lse_, d_, factors_, p_, ds_});
  }

  // Whether there are sums of dk and dv, and of dq, to add to.
  struct Sums {
    bool keys = false;
    bool queries = false;
  };
  void AddGradients(const TilePair& pair, Sums sums) {
    const GemmSize per_key{pair.keys.rows, shape_.e, pair.queries.rows};
    const TileMode from_row = pair.Mode(TilePart::kDepthFromRow, sums.keys, &ahead_);
    VecTileProduct(per_key, {p_, kTile, 1}, {grad_, width_, 1},
                   SumsOf(tensors_.dv, dv_, 0, pair.keys.first, group_), from_row);
    VecTileProduct(per_key, {ds_, kTile, 1}, {q_, width_, 1},
                   SumsOf(tensors_.dk, dk_, 0, pair.keys.first, group_), from_row);
    VecTileProduct({pair.queries.rows, shape_.e, pair.keys.rows}, {ds_, 1, kTile}, {k_, width_, 1},
                   SumsOf(tensors_.dq, dq_, pair.queries.first, pair.queries.first, pair.head),
                   pair.Mode(TilePart::kDepthToRow, sums.queries, &ahead_));
  }

  const AttentionRun& run_;
  const AttentionShape& shape_;
  const AttentionGradTensors<T>& tensors_;
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
  float* wide_ = nullptr;          // [kTile, width], rows of a bf16 tensor
  Matrix dq_, dk_, dv_;            // sums of a tile of queries, and of all keys; when kNarrow
};

}  // namespace

template <typename T>
void RunAttentionGrad(const AttentionRun& run, const AttentionGradTensors<T>& tensors) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    if (HasHalfAttention(run.shape)) return RunHalfAttentionGrad(run, tensors);
  }
  ParallelItems(run.context, run.shape.b * run.shape.g, [&](int64_t item) {
    GradGroup<T>(run, tensors, item / run.shape.g, item % run.shape.g).Run();
  });
}

template void RunAttentionGrad(const AttentionRun&, const AttentionGradTensors<float>&);
template void RunAttentionGrad(const AttentionRun&, const AttentionGradTensors<uint16_t>&);

}  // namespace meshwright::ops::cpu
