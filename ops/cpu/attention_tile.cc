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

}  // namespace

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

void HideSegments(const AttentionRun& run, const TilePair& pair, float* scores) {
  if (run.segments == nullptr) return;
  const int32_t* row = run.segments + pair.batch * run.shape.s;
  std::array<int32_t, kTile> queries{};
  std::copy_n(row + pair.queries.first, pair.queries.rows, queries.begin());
  const int32_t* keys = row + pair.keys.first;
  for (int64_t j = 0; j < pair.keys.rows; ++j) {
    float* of_key = scores + j * kTile;
    for (size_t i = 0; i < kTile; ++i) {
      of_key[i] = keys[j] == queries[i] ? of_key[i] : -std::numeric_limits<float>::infinity();
    }
  }
}

void DropoutFactors(const AttentionRun& run, const TilePair& pair, float* scratch, float* factors) {
  for (int64_t i = 0; i < pair.queries.rows; ++i) {
    const int64_t visible = pair.diagonal ? std::min(i + 1, pair.keys.rows) : pair.keys.rows;
    const uint64_t row =
        run.dropout.RowStart(pair.batch, pair.head, pair.queries.first + i, run.context.microbatch);
    const uint64_t start = row + static_cast<uint64_t>(pair.keys.first);
    float* out = scratch + i * kTile;
    MaskRow(run.dropout.mask(), run.context, start, kOnes.data(), out, visible);
    std::fill(out + visible, out + pair.keys.rows, 0.0f);
  }
  VecTileTranspose({scratch, kTile, 1}, pair.queries.rows, pair.keys.rows, factors);
}

}  // namespace meshwright::ops::cpu
