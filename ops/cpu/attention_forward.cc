// Forward pass of attention: one work item per query tile of a head.
#include <limits>
#include <type_traits>

#include "ops/cpu/attention_half.h"
#include "ops/cpu/attention_tile.h"
#include "ops/cpu/scratch.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

template <typename T>
class ForwardTile {
 public:
  ForwardTile(const AttentionRun& run, const AttentionTensors<T>& tensors)
      : run_(run),
        shape_(run.shape),
        tensors_(tensors),
        width_(PaddedWidth(run.shape.e)),
        ahead_(run.shape.e * static_cast<int64_t>(sizeof(T))) {
    ScratchCursor scratch(ThreadScratch(ScratchFloats()));
    q_ = scratch.Take(shape_.e * kTile);
    v_ = scratch.Take(kTile * width_);
    wide_ = scratch.Take(kTile * width_);
    scores_ = scratch.Take(kTile * kTile);
    sums_ = scratch.Take(kTile * width_);
    state_ = {scratch.Take(kTile), scratch.Take(kTile), scratch.Take(kTile)};
    if (!run.dropout.active()) return;
    factors_ = scratch.Take(kTile * kTile);
    mask_ = scratch.Take(kTile * kTile);
  }

  void Run(int64_t batch, int64_t head, size_t index) {
    const TileRange queries = run_.tiles.queries()[index];
    const HeadRows<const T> q = RowsOf(tensors_.q, batch, queries, head);
    VecTileTranspose(FloatRows(q, shape_.e, wide_), queries.rows, shape_.e, q_);
    std::fill_n(state_.max, kTile, -std::numeric_limits<float>::infinity());
    std::fill_n(state_.sum, kTile, 0.0f);
    bool first = true;
    ForBlocks(run_.tiles, queries, [&](size_t j, TileSight sight) {
      if (run_.tiles.FirstSeer(j) == index) {
        FetchForward(shape_, tensors_, TileAfter(shape_, run_.tiles, batch, head, j), ahead_);
      }
      AddBlock({batch, head, queries, run_.tiles.keys()[j], sight}, first);
      first = false;
    });
    if (first) std::fill_n(sums_, queries.rows * width_, 0.0f);
    FinishForward(shape_, tensors_, {batch, head, queries}, state_, sums_);
  }

 private:
  int64_t ScratchFloats() const {
    const int64_t states = 3 * kTile;
    const int64_t dropout = run_.dropout.active() ? 2 * kTile * kTile : 0;
    return kTile * (PaddedWidth(shape_.e) + 3 * width_ + kTile) + states + dropout;
  }

  void AddBlock(const TilePair& pair, bool first) {
    const int64_t group = pair.head / shape_.heads_per_group();
    const ConstMatrix k =
        FloatRows(RowsOf(tensors_.k, pair.batch, pair.keys, group), shape_.e, wide_);
    VecTileProduct({pair.keys.rows, PaddedWidth(pair.queries.rows), shape_.e}, k, {q_, kTile, 1},
                   {scores_, kTile, 1}, pair.Mode(TilePart::kColumnsFromRow, false, &ahead_));
    HideUnseen(run_, pair, scores_);
    VecTileSoftmax(pair.block(), static_cast<float>(shape_.scale()), scores_, state_);
    if (run_.dropout.active()) {
      DropoutFactors(run_, pair, mask_, factors_);
      VecTileMul(pair.block(), factors_, scores_);
    }
    if (!first) VecTileScaleRows(state_.rescale, pair.queries.rows, width_, sums_);
    PackRows(RowsOf(tensors_.v, pair.batch, pair.keys, group), shape_.e, v_);
    VecTileProduct({pair.queries.rows, width_, pair.keys.rows}, {scores_, 1, kTile},
                   {v_, width_, 1}, {sums_, width_, 1},
                   pair.Mode(TilePart::kDepthToRow, !first, &ahead_));
  }

  const AttentionRun& run_;
  const AttentionShape& shape_;
  const AttentionTensors<T>& tensors_;
  const int64_t width_;  // of a row of v and o in scratch
  RowQueue ahead_;
  float* q_ = nullptr;        // [e, kTile]
  float* v_ = nullptr;        // [keys, width]
  float* wide_ = nullptr;     // [kTile, width], rows of a bf16 tensor
  float* scores_ = nullptr;   // [keys, kTile]
  float* sums_ = nullptr;     // [queries, width], o times the sum of its row
  float* factors_ = nullptr;  // [keys, kTile]
  float* mask_ = nullptr;     // [queries, kTile]
  SoftmaxState state_;
};

}  // namespace

template <typename T>
void RunAttention(const AttentionRun& run, const AttentionTensors<T>& tensors) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    if (HasHalfAttention(run.shape)) return RunHalfAttention(run, tensors);
  }
  const auto tiles = static_cast<int64_t>(run.tiles.queries().size());
  ParallelItems(run.context, run.shape.b * run.shape.h * tiles, [&](int64_t item) {
    const int64_t head = item / tiles;
    ForwardTile<T>(run, tensors)
        .Run(head / run.shape.h, head % run.shape.h, static_cast<size_t>(item % tiles));
  });
}

template void RunAttention(const AttentionRun&, const AttentionTensors<float>&);
template void RunAttention(const AttentionRun&, const AttentionTensors<uint16_t>&);

}  // namespace meshwright::ops::cpu
