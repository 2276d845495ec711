#include "ops/cpu/attention_tile.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ops/cpu/mask_row.h"
#include "ops/cpu/vec_half.h"

namespace meshwright::ops::cpu {
namespace {

constexpr std::array<float, kTile> Ones() {
  std::array<float, kTile> ones{};
  for (float& one : ones) one = 1;
  return ones;
}
constexpr std::array<float, kTile> kOnes = Ones();
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Tiles do not reach over the end of a run.
std::vector<TileRange> Tiles(const std::vector<ir::TokenRun>& runs) {
  std::vector<TileRange> tiles;
  for (const ir::TokenRun& run : runs) {
    for (int64_t i = 0; i < run.count; i += kTile) {
      tiles.push_back({run.place + i, std::min(kTile, run.count - i), run.position + i});
    }
  }
  return tiles;
}

void HideSegments(const AttentionRun& run, const TilePair& pair, float* scores) {
  const int32_t* row = run.segments + pair.batch * run.shape.tokens;
  std::array<int32_t, kTile> queries{};
  std::copy_n(row + run.shape.query_block.start + pair.queries.first, pair.queries.rows,
              queries.begin());
  const int32_t* keys = row + run.shape.key_block.start + pair.keys.first;
  for (int64_t j = 0; j < pair.keys.rows; ++j) {
    float* of_key = scores + j * kTile;
    for (size_t i = 0; i < kTile; ++i) {
      of_key[i] = keys[j] == queries[i] ? of_key[i] : kHidden;
    }
  }
}

// Keys behind a query.
void HideLater(const TilePair& pair, float* scores) {
  for (int64_t j = 0; j < pair.keys.rows; ++j) {
    const int64_t blind = pair.keys.position + j - pair.queries.position;
    std::fill_n(scores + j * kTile, std::clamp<int64_t>(blind, 0, kTile), kHidden);
  }
}

// Keys before the window of a query.
void HideEarlier(const TilePair& pair, int64_t window, float* scores) {
  for (int64_t j = 0; j < pair.keys.rows; ++j) {
    const int64_t seers = pair.keys.position + j + window - pair.queries.position;
    const int64_t first = std::clamp<int64_t>(seers, 0, kTile);
    std::fill_n(scores + j * kTile + first, kTile - first, kHidden);
  }
}

}  // namespace

AttentionTiles::AttentionTiles(const AttentionShape& shape)
    : causal_(shape.causal),
      window_(shape.window),
      queries_(Tiles(shape.query_block.runs)),
      keys_(Tiles(shape.key_block.runs)) {
  for (const TileRange& keys : keys_) {
    size_t tile = 0;
    while (tile < queries_.size() && SightOf(queries_[tile], keys) == TileSight::kNothing) ++tile;
    first_seer_.push_back(tile);
  }
}

TileSight AttentionTiles::SightOf(const TileRange& queries, const TileRange& keys) const {
  if (!causal_) return TileSight::kAll;
  const int64_t nearest = queries.position - (keys.position + keys.rows - 1);
  if (window_ > 0 && nearest >= window_) return TileSight::kNothing;
  if (keys.position == queries.position) return TileSight::kDiagonal;
  if (keys.position >= queries.position + queries.rows) return TileSight::kNothing;
  return keys.position + keys.rows <= queries.position + 1 ? TileSight::kAll : TileSight::kSome;
}

void PackRows(const HeadRows<const float>& from, int64_t e, float* out) {
  VecTilePack({from.data, from.row_stride, 1}, from.rows, e, out);
}

void PackRows(const HeadRows<const uint16_t>& from, int64_t e, float* out) {
  const int64_t width = PaddedWidth(e);
  for (int64_t i = 0; i < from.rows; ++i) {
    VecWiden(from.data + i * from.row_stride, out + i * width, e);
    std::fill(out + i * width + e, out + (i + 1) * width, 0.0f);
  }
}

void StoreRows(const float* from, int64_t stride, int64_t e, const HeadRows<float>& to) {
  for (int64_t i = 0; i < to.rows; ++i) {
    std::copy_n(from + i * stride, e, to.data + i * to.row_stride);
  }
}

void StoreRows(const float* from, int64_t stride, int64_t e, const HeadRows<uint16_t>& to) {
  for (int64_t i = 0; i < to.rows; ++i) {
    VecNarrow(from + i * stride, to.data + i * to.row_stride, e);
  }
}

void HideUnseen(const AttentionRun& run, const TilePair& pair, float* scores) {
  if (run.segments != nullptr) HideSegments(run, pair, scores);
  if (pair.sight == TileSight::kSome) HideLater(pair, scores);
  const int64_t farthest = pair.queries.position + pair.queries.rows - 1 - pair.keys.position;
  if (run.shape.window > 0 && farthest >= run.shape.window) {
    HideEarlier(pair, run.shape.window, scores);
  }
}

void DropoutFactors(const AttentionRun& run, const TilePair& pair, float* scratch, float* factors) {
  for (int64_t i = 0; i < pair.queries.rows; ++i) {
    const int64_t visible = pair.diagonal() ? std::min(i + 1, pair.keys.rows) : pair.keys.rows;
    const uint64_t row = run.dropout.RowStart(pair.batch, pair.head, pair.queries.position + i,
                                              run.context.microbatch);
    const uint64_t start = row + static_cast<uint64_t>(pair.keys.position);
    float* out = scratch + i * kTile;
    MaskRow(run.dropout.mask(), run.context, start, kOnes.data(), out, visible);
    std::fill(out + visible, out + pair.keys.rows, 0.0f);
  }
  VecTileTranspose({scratch, kTile, 1}, pair.queries.rows, pair.keys.rows, factors);
}

}  // namespace meshwright::ops::cpu
