#include "ops/cpu/attention_half.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/half_tile.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

using Half = uint16_t;

constexpr int64_t kHalfBytes = sizeof(Half);

// Rows of a head that lie as words.
HalfRows HalfRowsOf(const HeadRows<const Half>& rows) {
  return {rows.data, rows.row_stride, rows.rows};
}

WordMatrix WordsOf(const HeadRows<const Half>& rows) {
  return {reinterpret_cast<const uint32_t*>(rows.data), rows.row_stride / 2, 1};
}

int64_t Pairs(int64_t rows) { return (rows + 1) / 2; }

// Scratch memory for words, which are as large as floats.
uint32_t* TakeWords(ScratchCursor& scratch, int64_t count) {
  return reinterpret_cast<uint32_t*>(scratch.Take(count));
}

class HalfForwardTile {
 public:
  HalfForwardTile(const AttentionRun& run, const AttentionTensors<Half>& tensors)
      : run_(run),
        shape_(run.shape),
        tensors_(tensors),
        width_(PaddedWidth(run.shape.e)),
        ahead_(run.shape.e * kHalfBytes) {
    ScratchCursor scratch(ThreadScratch(ScratchFloats()));
    q_ = TakeWords(scratch, width_ * kTile);
    v_ = TakeWords(scratch, kTile * width_);
    p_ = TakeWords(scratch, kTile * kTile);
    scores_ = scratch.Take(kTile * kTile);
    sums_ = scratch.Take(kTile * width_);
    state_ = {scratch.Take(kTile), scratch.Take(kTile), scratch.Take(kTile)};
    if (!run.dropout.active()) return;
    factors_ = scratch.Take(kTile * kTile);
    mask_ = scratch.Take(kTile * kTile);
  }

  void Run(int64_t batch, int64_t head, size_t index) {
    const TileRange queries = run_.tiles.queries()[index];
    HalfTileTranspose(HalfRowsOf(RowsOf(tensors_.q, batch, queries, head)), shape_.e, q_);
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
    return kTile * (3 * width_ + 2 * kTile) + states + dropout;
  }

  void AddBlock(const TilePair& pair, bool first) {
    const int64_t group = pair.head / shape_.heads_per_group();
    const WordMatrix k = WordsOf(RowsOf(tensors_.k, pair.batch, pair.keys, group));
    HalfTileProduct({pair.keys.rows, PaddedWidth(pair.queries.rows), shape_.e / 2}, k,
                    {q_, kTile, 1}, {scores_, kTile, 1},
                    pair.Mode(TilePart::kColumnsFromRow, false, &ahead_));
    HideUnseen(run_, pair, scores_);
    VecTileSoftmax(pair.block(), static_cast<float>(shape_.scale()), scores_, state_);
    if (run_.dropout.active()) {
      DropoutFactors(run_, pair, mask_, factors_);
      VecTileMul(pair.block(), factors_, scores_);
    }
    if (!first) VecTileScaleRows(state_.rescale, pair.queries.rows, width_, sums_);
    HalfTileZip(scores_, pair.keys.rows, p_);
    HalfTileZip(HalfRowsOf(RowsOf(tensors_.v, pair.batch, pair.keys, group)), shape_.e, v_);
    HalfTileProduct({pair.queries.rows, width_, Pairs(pair.keys.rows)}, {p_, 1, kTile},
                    {v_, width_, 1}, {sums_, width_, 1},
                    pair.Mode(TilePart::kDepthToRow, !first, &ahead_));
  }

  const AttentionRun& run_;
  const AttentionShape& shape_;
  const AttentionTensors<Half>& tensors_;
  const int64_t width_;  // of a row of v and o in scratch
  RowQueue ahead_;
  uint32_t* q_ = nullptr;     // [e / 2, kTile]
  uint32_t* v_ = nullptr;     // [keys / 2, width]
  uint32_t* p_ = nullptr;     // [keys / 2, kTile]
  float* scores_ = nullptr;   // [keys, kTile]
  float* sums_ = nullptr;     // [queries, width], o times the sum of its row
  float* factors_ = nullptr;  // [keys, kTile]
  float* mask_ = nullptr;     // [queries, kTile]
  SoftmaxState state_;
};

// One kv head of a batch row. Gradients of keys and values are summed in f32 in scratch.
class HalfGradGroup {
 public:
  HalfGradGroup(const AttentionRun& run, const AttentionGradTensors<Half>& tensors, int64_t batch,
                int64_t group)
      : run_(run),
        shape_(run.shape),
        tensors_(tensors),
        batch_(batch),
        group_(group),
        width_(PaddedWidth(run.shape.e)),
        ahead_(run.shape.e * kHalfBytes) {
    ScratchCursor scratch(ThreadScratch(ScratchFloats()));
    for (uint32_t** words : {&q_columns_, &grad_columns_, &q_, &grad_, &k_}) {
      *words = TakeWords(scratch, kTile * width_);
    }
    for (uint32_t** words : {&p_words_, &ds_words_, &ds_pairs_}) {
      *words = TakeWords(scratch, kTile * kTile);
    }
    p_ = scratch.Take(kTile * kTile);
    ds_ = scratch.Take(kTile * kTile);
    lse_ = scratch.Take(kTile);
    d_ = scratch.Take(kTile);
    wide_ = scratch.Take(2 * kTile * width_);
    dq_ = scratch.Take(kTile * width_);
    dk_ = scratch.Take(shape_.keys * width_);
    dv_ = scratch.Take(shape_.keys * width_);
    if (!run.dropout.active()) return;
    factors_ = scratch.Take(kTile * kTile);
    mask_ = scratch.Take(kTile * kTile);
  }

  void Run() {
    const int64_t heads = shape_.heads_per_group();
    for (int64_t head = group_ * heads; head < (group_ + 1) * heads; ++head) {
      for (size_t i = 0; i < run_.tiles.queries().size(); ++i) RunTile(head, i);
    }
    for (size_t j = 0; j < run_.tiles.keys().size(); ++j) {
      if (run_.tiles.FirstSeer(j) < run_.tiles.queries().size()) continue;
      const TileRange& unseen = run_.tiles.keys()[j];
      std::fill_n(dk_ + unseen.first * width_, unseen.rows * width_, 0.0f);
      std::fill_n(dv_ + unseen.first * width_, unseen.rows * width_, 0.0f);
    }
    const TileRange all{0, shape_.keys};
    StoreRows(dk_, width_, shape_.e, RowsOf(tensors_.dk, batch_, all, group_));
    StoreRows(dv_, width_, shape_.e, RowsOf(tensors_.dv, batch_, all, group_));
  }

 private:
  int64_t ScratchFloats() const {
    const int64_t dropout = run_.dropout.active() ? 2 * kTile * kTile : 0;
    return kTile * (8 * width_ + 5 * kTile + 2) + 2 * shape_.keys * width_ + dropout;
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
    if (first) std::fill_n(dq_, queries.rows * width_, 0.0f);
    StoreRows(dq_, width_, shape_.e, RowsOf(tensors_.dq, batch_, queries, head));
  }

  // Everything about a tile of queries that its blocks of keys share.
  void LoadQueries(int64_t head, const TileRange& queries) {
    const HeadRows<const Half> q = RowsOf(tensors_.q, batch_, queries, head);
    const HeadRows<const Half> grad = RowsOf(tensors_.grad, batch_, queries, head);
    HalfTileTranspose(HalfRowsOf(q), shape_.e, q_columns_);
    HalfTileTranspose(HalfRowsOf(grad), shape_.e, grad_columns_);
    HalfTileZip(HalfRowsOf(q), shape_.e, q_);
    HalfTileZip(HalfRowsOf(grad), shape_.e, grad_);
    const float* lse = tensors_.lse + (batch_ * shape_.h + head) * shape_.s + queries.first;
    std::fill_n(std::copy_n(lse, queries.rows, lse_), kTile - queries.rows, 0.0f);
    std::fill_n(d_, kTile, 0.0f);
    float* o = wide_ + kTile * width_;
    PackRows(grad, shape_.e, wide_);
    PackRows(RowsOf(tensors_.o, batch_, queries, head), shape_.e, o);
    for (int64_t i = 0; i < queries.rows; ++i) {
      d_[i] = VecDot(wide_ + i * width_, o + i * width_, shape_.e);
    }
  }

  // p: probabilities, masked as dv needs them; ds: gradient of the scores.
  void ScoreGradients(const TilePair& pair) {
    const WordMatrix k = WordsOf(RowsOf(tensors_.k, batch_, pair.keys, group_));
    const WordMatrix v = WordsOf(RowsOf(tensors_.v, batch_, pair.keys, group_));
    const GemmSize size{pair.keys.rows, PaddedWidth(pair.queries.rows), shape_.e / 2};
    const TileMode mode = pair.Mode(TilePart::kColumnsFromRow, false, &ahead_);
    HalfTileProduct(size, k, {q_columns_, kTile, 1}, {p_, kTile, 1}, mode);
    HalfTileProduct(size, v, {grad_columns_, kTile, 1}, {ds_, kTile, 1}, mode);
    if (run_.dropout.active()) DropoutFactors(run_, pair, mask_, factors_);
    HideUnseen(run_, pair, p_);
    VecTileScoreGrad(pair.block(),
                     {static_cast<float>(shape_.scale()), lse_, d_, factors_, p_, ds_});
    Narrow(p_, pair.keys.rows, p_words_);
    Narrow(ds_, pair.keys.rows, ds_words_);
    HalfTileZip(ds_, pair.keys.rows, ds_pairs_);
  }

  // Rows of f32 into rows of words, each of two queries.
  static void Narrow(const float* x, int64_t rows, uint32_t* out) {
    HalfNarrow(x, reinterpret_cast<Half*>(out), rows * kTile);
  }

  // Whether there are sums of dk and dv, and of dq, to add to.
  struct Sums {
    bool keys = false;
    bool queries = false;
  };
  void AddGradients(const TilePair& pair, Sums sums) {
    const GemmSize per_key{pair.keys.rows, shape_.e, Pairs(pair.queries.rows)};
    const TileMode from_row = pair.Mode(TilePart::kDepthFromRow, sums.keys, &ahead_);
    const int64_t key = pair.keys.first * width_;
    HalfTileProduct(per_key, {p_words_, kTile / 2, 1}, {grad_, width_, 1}, {dv_ + key, width_, 1},
                    from_row);
    HalfTileProduct(per_key, {ds_words_, kTile / 2, 1}, {q_, width_, 1}, {dk_ + key, width_, 1},
                    from_row);
    HalfTileZip(HalfRowsOf(RowsOf(tensors_.k, batch_, pair.keys, group_)), shape_.e, k_);
    HalfTileProduct({pair.queries.rows, shape_.e, Pairs(pair.keys.rows)}, {ds_pairs_, 1, kTile},
                    {k_, width_, 1}, {dq_, width_, 1},
                    pair.Mode(TilePart::kDepthToRow, sums.queries, &ahead_));
  }

  const AttentionRun& run_;
  const AttentionShape& shape_;
  const AttentionGradTensors<Half>& tensors_;
  const int64_t batch_;
  const int64_t group_;
  const int64_t width_;  // of a row of e values in scratch
  RowQueue ahead_;
  uint32_t* q_columns_ = nullptr;     // [e / 2, kTile]
  uint32_t* grad_columns_ = nullptr;  // [e / 2, kTile]
  uint32_t* q_ = nullptr;             // [queries / 2, width]
  uint32_t* grad_ = nullptr;          // [queries / 2, width]
  uint32_t* k_ = nullptr;             // [keys / 2, width]
  uint32_t* p_words_ = nullptr;       // [keys, kTile / 2]
  uint32_t* ds_words_ = nullptr;      // [keys, kTile / 2]
  uint32_t* ds_pairs_ = nullptr;      // [keys / 2, kTile]
  float* p_ = nullptr;                // [keys, kTile]
  float* ds_ = nullptr;               // [keys, kTile]
  float* lse_ = nullptr;              // [kTile]
  float* d_ = nullptr;                // [kTile]
  float* wide_ = nullptr;             // 2 x [queries, width]
  float* dq_ = nullptr;               // [queries, width]
  float* dk_ = nullptr;               // [keys, width]
  float* dv_ = nullptr;               // [keys, width]
  float* factors_ = nullptr;          // [keys, kTile], null without dropout
  float* mask_ = nullptr;             // [queries, kTile]
};

}  // namespace

bool HasHalfAttention(const AttentionShape& shape) { return HasHalfTiles() && shape.e % 2 == 0; }

void RunHalfAttention(const AttentionRun& run, const AttentionTensors<uint16_t>& tensors) {
  const auto tiles = static_cast<int64_t>(run.tiles.queries().size());
  ParallelItems(run.context, run.shape.b * run.shape.h * tiles, [&](int64_t item) {
    const int64_t head = item / tiles;
    HalfForwardTile(run, tensors)
        .Run(head / run.shape.h, head % run.shape.h, static_cast<size_t>(item % tiles));
  });
}

void RunHalfAttentionGrad(const AttentionRun& run, const AttentionGradTensors<uint16_t>& tensors) {
  ParallelItems(run.context, run.shape.b * run.shape.g, [&](int64_t item) {
    HalfGradGroup(run, tensors, item / run.shape.g, item % run.shape.g).Run();
  });
}

}  // namespace meshwright::ops::cpu
