#include "ops/cpu/vec_tile.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_tile.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

// Vectors of a row of c that one pass over k keeps in registers, for each of kTileGrain rows: 16
// sums of 32 registers with AVX-512, 8 of 16 before it.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int64_t kPanelVectors = 2;
#else
constexpr int64_t kPanelVectors = 4;
#endif

HWY_INLINE int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// The sums of kRows rows and kVectors vectors of c, at most the last vector in part.
struct Panel {
  int64_t depth = 0;
  ConstMatrix a;
  ConstMatrix b;
  Matrix c;
  size_t last_lanes = 0;  // of the last vector
  bool accumulate = false;
};

// kTransposed: a has stride one along rows, otherwise along k.
template <bool kTransposed, int kRows, int kVectors>
void PanelProduct(const Panel& panel) {
  const FloatTag d;
  const int64_t lanes = LaneCount();
  const int64_t a_row = kTransposed ? 1 : panel.a.row_stride;
  const int64_t a_step = kTransposed ? panel.a.column_stride : 1;
  const float* HWY_RESTRICT a = panel.a.data;
  const float* HWY_RESTRICT b = panel.b.data;
  FloatVec sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < panel.depth; ++k) {
    FloatVec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
    for (int i = 0; i < kRows; ++i) {
      const FloatVec factor = hn::Set(d, a[i * a_row]);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
    }
    a += a_step;
    b += panel.b.row_stride;
  }
  // Unrolled whole, like the loops above: an array whose index is not constant lives in memory.
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      float* c = panel.c.data + i * panel.c.row_stride + v * lanes;
      const size_t count = v + 1 < kVectors ? hn::Lanes(d) : panel.last_lanes;
      const FloatVec old = panel.accumulate ? LoadLanes(d, c, count) : hn::Zero(d);
      StoreLanes(hn::Add(old, sums[i][v]), d, c, count);
    }
  }
}

template <bool kTransposed, int kRows>
HWY_INLINE void PanelOf(int64_t vectors, const Panel& panel) {
  if (vectors == 1) return PanelProduct<kTransposed, kRows, 1>(panel);
  if (vectors == 2 || kPanelVectors == 2) return PanelProduct<kTransposed, kRows, 2>(panel);
  if (vectors == 3) return PanelProduct<kTransposed, kRows, 3>(panel);
  return PanelProduct<kTransposed, kRows, 4>(panel);
}

// kRows rows of c from row `first` on.
template <bool kTransposed, int kRows>
HWY_INLINE void RowsProduct(const GemmSize& size, int64_t first, const Panel& whole,
                            TilePart part) {
  const int64_t lanes = LaneCount();
  // The group of kTileGrain rows decides, so that a row alone counts like one in a group.
  const int64_t group = first / kTileGrain * kTileGrain;
  const int64_t from = part == TilePart::kDepthFromRow ? group : 0;
  const int64_t to = part == TilePart::kDepthToRow ? group + kTileGrain : size.k;
  Panel panel = whole;
  panel.depth = std::min(to, size.k) - from;
  panel.a.data += first * panel.a.row_stride + from * panel.a.column_stride;
  panel.b.data += from * panel.b.row_stride;
  panel.c.data += first * panel.c.row_stride;
  const int64_t skipped = part == TilePart::kColumnsFromRow ? first / lanes : 0;
  int64_t column = skipped * lanes;
  while (column < size.n) {
    const int64_t vectors = std::min(kPanelVectors, (size.n - column + lanes - 1) / lanes);
    const int64_t full = (vectors - 1) * lanes;
    panel.last_lanes = static_cast<size_t>(std::min(lanes, size.n - column - full));
    Panel at = panel;
    at.b.data += column;
    at.c.data += column;
    PanelOf<kTransposed, kRows>(vectors, at);
    column += full + lanes;
  }
}

// Rows to fetch per kTileGrain rows of a product: 8 tensors' within the 5 products of a backward
// block, 4 tensors' within the 2 of a forward one.
constexpr int64_t kRowsAhead = 8;

template <bool kTransposed>
HWY_INLINE void ProductOf(const GemmSize& size, const Panel& panel, TileMode mode) {
  int64_t i = 0;
  for (; i + kTileGrain <= size.m; i += kTileGrain) {
    if (mode.ahead != nullptr) mode.ahead->Fetch(kRowsAhead);
    RowsProduct<kTransposed, kTileGrain>(size, i, panel, mode.part);
  }
  for (; i < size.m; ++i) RowsProduct<kTransposed, 1>(size, i, panel, mode.part);
}

void Product(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b, const Matrix& c,
             TileMode mode) {
  const Panel panel{0, a, b, c, 0, mode.accumulate};
  if (a.column_stride == 1) {
    ProductOf<false>(size, panel, mode);
  } else {
    ProductOf<true>(size, panel, mode);
  }
}

constexpr int64_t kSquare = 4;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void TransposeSquare(const ConstMatrix& x, float* out) {
  for (int64_t i = 0; i < kSquare; ++i) {
    for (int64_t j = 0; j < kSquare; ++j) out[j * kTile + i] = x.data[i * x.row_stride + j];
  }
}
#else
HWY_INLINE void TransposeSquare(const ConstMatrix& x, float* out) {
  const hn::FixedTag<float, kSquare> d;
  const auto r0 = hn::LoadU(d, x.data);
  const auto r1 = hn::LoadU(d, x.data + x.row_stride);
  const auto r2 = hn::LoadU(d, x.data + 2 * x.row_stride);
  const auto r3 = hn::LoadU(d, x.data + 3 * x.row_stride);
  const auto even_low = hn::InterleaveLower(d, r0, r2);
  const auto odd_low = hn::InterleaveLower(d, r1, r3);
  const auto even_high = hn::InterleaveUpper(d, r0, r2);
  const auto odd_high = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, out);
  hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, out + kTile);
  hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, out + 2 * kTile);
  hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, out + 3 * kTile);
}
#endif

void Transpose(const ConstMatrix& x, int64_t rows, int64_t columns, float* out) {
  const int64_t whole_rows = rows / kSquare * kSquare;
  const int64_t whole_columns = columns / kSquare * kSquare;
  for (int64_t i = 0; i < whole_rows; i += kSquare) {
    for (int64_t j = 0; j < whole_columns; j += kSquare) {
      TransposeSquare({x.data + i * x.row_stride + j, x.row_stride, 1}, out + j * kTile + i);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      out[j * kTile + i] = x.data[i * x.row_stride + j];
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    std::fill(out + j * kTile + rows, out + j * kTile + PaddedWidth(rows), 0.0f);
  }
}

void Pack(const ConstMatrix& x, int64_t rows, int64_t columns, float* out) {
  const FloatTag d;
  const int64_t width = PaddedWidth(columns);
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = x.data + i * x.row_stride;
    float* to = out + i * width;
    ForLanes(d, columns,
             [&](int64_t j, size_t lanes) { hn::Store(LoadLanes(d, from + j, lanes), d, to + j); });
    std::fill(to + columns, to + width, 0.0f);
  }
}

void ScaleRows(const float* factors, int64_t rows, int64_t width, float* x) {
  const FloatTag d;
  for (int64_t i = 0; i < rows; ++i) {
    const FloatVec factor = hn::Set(d, factors[i]);
    float* row = x + i * width;
    ForLanes(d, width, [&](int64_t j, size_t) {
      hn::Store(hn::Mul(hn::Load(d, row + j), factor), d, row + j);
    });
  }
}

// Calls body(j, hidden) for the keys that any lane of the vector of queries from `first` on sees;
// the first `hidden` lanes do not see key j. On the diagonal a few keys more, up to the grain.
template <typename Body>
HWY_INLINE void ForKeys(const TileBlock& block, int64_t first, const Body& body) {
  const int64_t lanes = LaneCount();
  if (!block.diagonal) {
    for (int64_t j = 0; j < block.keys; ++j) body(j, size_t{0});
    return;
  }
  const int64_t to = (first + lanes + kTileGrain - 1) / kTileGrain * kTileGrain;
  const int64_t last = std::min(block.keys, to);
  const int64_t open = std::min(last, first + 1);
  for (int64_t j = 0; j < open; ++j) body(j, size_t{0});
  for (int64_t j = open; j < last; ++j) body(j, static_cast<size_t>(std::min(lanes, j - first)));
}

HWY_INLINE FloatVec Hide(FloatTag d, FloatVec x, size_t hidden, FloatVec instead) {
  if (hidden == 0) return x;
  return hn::IfThenElse(hn::FirstN(d, hidden), instead, x);
}

void Softmax(const TileBlock& block, float scale, float* scores, const SoftmaxState& state) {
  const FloatTag d;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const FloatVec factor = hn::Set(d, scale * kLog2OfE);
  for (int64_t i = 0; i < block.queries; i += LaneCount()) {
    const FloatVec old = hn::Load(d, state.max + i);
    FloatVec best = old;
    ForKeys(block, i, [&](int64_t j, size_t hidden) {
      best = hn::Max(best, Hide(d, hn::Load(d, scores + j * kTile + i), hidden, lowest));
    });
    hn::Store(best, d, state.max + i);
    // A query whose scores are all -inf so far has sum 0.
    const FloatVec shift = hn::IfThenZeroElse(hn::Eq(best, lowest), hn::Mul(best, factor));
    const FloatVec rescale = Exp2(d, hn::MulSub(old, factor, shift));
    hn::Store(rescale, d, state.rescale + i);
    FloatVec sum = hn::Mul(hn::Load(d, state.sum + i), rescale);
    ForKeys(block, i, [&](int64_t j, size_t hidden) {
      float* at = scores + j * kTile + i;
      const FloatVec p = Exp2(d, hn::MulSub(hn::Load(d, at), factor, shift));
      const FloatVec seen = Hide(d, p, hidden, hn::Zero(d));
      hn::Store(seen, d, at);
      sum = hn::Add(sum, seen);
    });
    hn::Store(sum, d, state.sum + i);
  }
}

template <bool kDropout>
HWY_INLINE void ScoreGradOf(const TileBlock& block, const ScoreGradTile& tile) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, tile.scale * kLog2OfE);
  const FloatVec scale = hn::Set(d, tile.scale);
  for (int64_t i = 0; i < block.queries; i += LaneCount()) {
    const FloatVec lse = hn::Load(d, tile.lse + i);
    const FloatVec shift = hn::Mul(lse, hn::Set(d, kLog2OfE));
    const FloatVec mean = hn::Load(d, tile.d + i);
    // A query that saw only -inf has no probabilities.
    const auto blind = hn::Eq(lse, hn::Set(d, -std::numeric_limits<float>::infinity()));
    ForKeys(block, i, [&](int64_t j, size_t hidden) {
      const int64_t at = j * kTile + i;
      const FloatVec score = hn::Load(d, tile.p + at);
      FloatVec p = hn::IfThenZeroElse(blind, Exp2(d, hn::MulSub(score, factor, shift)));
      FloatVec dp = hn::Load(d, tile.ds + at);
      if (kDropout) dp = hn::Mul(dp, hn::Load(d, tile.factors + at));
      const FloatVec ds = hn::Mul(hn::Mul(p, scale), hn::Sub(dp, mean));
      if (kDropout) p = hn::Mul(p, hn::Load(d, tile.factors + at));
      hn::Store(Hide(d, p, hidden, hn::Zero(d)), d, tile.p + at);
      hn::Store(Hide(d, ds, hidden, hn::Zero(d)), d, tile.ds + at);
    });
  }
}

void ScoreGrad(const TileBlock& block, const ScoreGradTile& tile) {
  if (tile.factors != nullptr) {
    ScoreGradOf<true>(block, tile);
  } else {
    ScoreGradOf<false>(block, tile);
  }
}

void Multiply(const TileBlock& block, const float* y, float* x) {
  const FloatTag d;
  for (int64_t i = 0; i < block.queries; i += LaneCount()) {
    ForKeys(block, i, [&](int64_t j, size_t) {
      const int64_t at = j * kTile + i;
      hn::Store(hn::Mul(hn::Load(d, x + at), hn::Load(d, y + at)), d, x + at);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(Product);
HWY_EXPORT(Transpose);
HWY_EXPORT(Pack);
HWY_EXPORT(ScaleRows);
HWY_EXPORT(Softmax);
HWY_EXPORT(ScoreGrad);
HWY_EXPORT(Multiply);

void VecTileProduct(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b,
                    const Matrix& c, TileMode mode) {
  HWY_DYNAMIC_DISPATCH(Product)(size, a, b, c, mode);
}

void VecTileTranspose(const ConstMatrix& x, int64_t rows, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(Transpose)(x, rows, columns, out);
}

void VecTilePack(const ConstMatrix& x, int64_t rows, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(Pack)(x, rows, columns, out);
}

void VecTileScaleRows(const float* factors, int64_t rows, int64_t width, float* x) {
  HWY_DYNAMIC_DISPATCH(ScaleRows)(factors, rows, width, x);
}

void VecTileSoftmax(const TileBlock& block, float scale, float* scores, const SoftmaxState& state) {
  HWY_DYNAMIC_DISPATCH(Softmax)(block, scale, scores, state);
}

void VecTileScoreGrad(const TileBlock& block, const ScoreGradTile& tile) {
  HWY_DYNAMIC_DISPATCH(ScoreGrad)(block, tile);
}

void VecTileMul(const TileBlock& block, const float* y, float* x) {
  HWY_DYNAMIC_DISPATCH(Multiply)(block, y, x);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
