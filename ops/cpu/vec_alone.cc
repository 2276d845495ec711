#include "ops/cpu/vec_alone.h"

#include <algorithm>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_alone.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_inl.h"
#include "ops/cpu/vec_wide_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kPanelColumns = 64;
// Sums of neighbouring columns of one row of c.
void PutRow(const AloneWork& work, int64_t row, int64_t column, int64_t count, const float* sums) {
  if (work.c.half) {
    uint16_t* to = static_cast<uint16_t*>(work.c.data) + row * work.c.row_stride + column;
    VecNarrow(sums, to, count);
    return;
  }
  float* to = static_cast<float*>(work.c.data) + row * work.c.row_stride + column;
  if (!work.accumulate) {
    std::copy(sums, sums + count, to);
    return;
  }
  for (int64_t j = 0; j < count; ++j) to[j] += sums[j];
}

// ---- few rows ----

// Of a piece: the segment of k, and columns of b. Its sums [m, work.sum_row] lie with those of its
// segment.
struct Piece {
  int64_t first_k = 0;
  int64_t last_k = 0;
  int64_t column = 0;
  int64_t width = 0;
  float* sums = nullptr;
};

constexpr int64_t kSteps = 8;  // of k, per visit of a sum
constexpr int64_t kAheadBytes = 8192;
constexpr int64_t kLineBytes = 64;

// sums [kRows, work.sum_row] += the steps of k from `k` on, in their order.
template <typename T, int kRows, int kDepth>
HWY_INLINE void StreamSteps(const AloneWork& work, const Piece& piece, int64_t row, int64_t k,
                            float* sums) {
  const FloatTag d;
  const T* b = static_cast<const T*>(work.b.data) + k * work.b.row_stride + piece.column;
  const float* a = work.a + row * work.a_row + k;
  const int64_t lanes = LaneCount();
  for (int64_t j = 0; j < piece.width; j += lanes) {
    FloatVec rows[kDepth];
    HWY_UNROLL(8)
    for (int s = 0; s < kDepth; ++s) {
      rows[s] = LoadWideLanes(d, b + s * work.b.row_stride + j, piece.width - j);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      float* at = sums + i * work.sum_row + j;
      FloatVec sum = hn::Load(d, at);
      HWY_UNROLL(8)
      for (int s = 0; s < kDepth; ++s) {
        sum = hn::MulAdd(hn::Set(d, a[i * work.a_row + s]), rows[s], sum);
      }
      hn::Store(sum, d, at);
    }
  }
}

// The same for one row: b is walked from its begin to its end, as memory likes best. A processor
// fetches little ahead by itself, and nothing beyond a page: `ahead` rows before they are due their
// bytes are asked for, into the second cache; 0: they are not.
template <typename T>
void StreamOne(const AloneWork& work, const Piece& piece, int64_t row, int64_t k, int64_t ahead,
               float* sums) {
  constexpr int kAtOnce = 4;
  const FloatTag d;
  const T* HWY_RESTRICT b =
      static_cast<const T*>(work.b.data) + k * work.b.row_stride + piece.column;
  const FloatVec a = hn::Set(d, work.a[row * work.a_row + k]);
  const int64_t lanes = LaneCount();
  int64_t j = 0;
  for (; j + kAtOnce * lanes <= piece.width; j += kAtOnce * lanes) {
    if (ahead > 0) {
      for (int64_t c = 0; c < kAtOnce * lanes; c += kLineBytes / static_cast<int64_t>(sizeof(T))) {
        __builtin_prefetch(b + ahead * work.b.row_stride + j + c, 0, 2);
      }
    }
    FloatVec sum[kAtOnce];
    HWY_UNROLL(4)
    for (int v = 0; v < kAtOnce; ++v) sum[v] = hn::Load(d, sums + j + v * lanes);
    HWY_UNROLL(4)
    for (int v = 0; v < kAtOnce; ++v) {
      sum[v] = hn::MulAdd(a, LoadWide(d, b + j + v * lanes), sum[v]);
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kAtOnce; ++v) hn::Store(sum[v], d, sums + j + v * lanes);
  }
  for (; j < piece.width; j += lanes) {
    hn::Store(hn::MulAdd(a, LoadWideLanes(d, b + j, piece.width - j), hn::Load(d, sums + j)), d,
              sums + j);
  }
}

template <typename T>
void StreamRow(const AloneWork& work, const Piece& piece, int64_t row) {
  float* sums = piece.sums + row * work.sum_row;
  const int64_t bytes = piece.width * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = (kAheadBytes + bytes - 1) / bytes;
  for (int64_t k = piece.first_k; k < piece.last_k; ++k) {
    StreamOne<T>(work, piece, row, k, k + ahead < piece.last_k ? ahead : 0, sums);
  }
}

template <typename T, int kRows>
void StreamRows(const AloneWork& work, const Piece& piece, int64_t row) {
  float* sums = piece.sums + row * work.sum_row;
  int64_t k = piece.first_k;
  for (; k + kSteps <= piece.last_k; k += kSteps) {
    StreamSteps<T, kRows, kSteps>(work, piece, row, k, sums);
  }
  for (; k < piece.last_k; ++k) StreamSteps<T, kRows, 1>(work, piece, row, k, sums);
}

// Eight rows: sums in registers over so many steps of k, whose rows of b the second cache holds
// and the steps before them have fetched.
constexpr int64_t kStripSteps = 32;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kStripVectors = 1;
#else
constexpr int kStripVectors = 3;
#endif

// sums [kFewRows, work.sum_row] += `depth` steps of k, for kVectors vectors of columns, of which
// `width` are there; b has `left` steps from k on.
template <typename T, int kVectors>
HWY_INLINE void Strip(const AloneWork& work, const float* HWY_RESTRICT a, int64_t depth,
                      int64_t left, const T* b, int64_t width, float* sums) {
  const FloatTag d;
  const int64_t lanes = LaneCount();
  FloatVec sum[kFewRows][kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kFewRows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = hn::Load(d, sums + i * work.sum_row + v * lanes);
    }
  }
  for (int64_t s = 0; s < depth; ++s) {
    const T* from = b + s * work.b.row_stride;
    // Into the second cache: the first has no room for them.
    if (s + kStripSteps < left) {
      for (int v = 0; v < kVectors; ++v) {
        __builtin_prefetch(from + kStripSteps * work.b.row_stride + v * lanes, 0, 2);
      }
    }
    FloatVec line[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      line[v] = LoadWideLanes(d, from + v * lanes, width - v * lanes);
    }
    for (int i = 0; i < kFewRows; ++i) {
      const FloatVec factor = hn::Set(d, a[i * work.a_row + s]);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(factor, line[v], sum[i][v]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kFewRows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[i][v], d, sums + i * work.sum_row + v * lanes);
    }
  }
}

template <typename T>
void StripRows(const AloneWork& work, const Piece& piece, int64_t row) {
  float* sums = piece.sums + row * work.sum_row;
  const int64_t wide = kStripVectors * LaneCount();
  for (int64_t k = piece.first_k; k < piece.last_k; k += kStripSteps) {
    const int64_t left = piece.last_k - k;
    const int64_t depth = std::min(kStripSteps, left);
    const float* a = work.a + row * work.a_row + k;
    const T* b = static_cast<const T*>(work.b.data) + k * work.b.row_stride + piece.column;
    int64_t j = 0;
    for (; j + wide <= piece.width; j += wide) {
      Strip<T, kStripVectors>(work, a, depth, left, b + j, wide, sums + j);
    }
    for (; j < piece.width; j += LaneCount()) {
      Strip<T, 1>(work, a, depth, left, b + j, piece.width - j, sums + j);
    }
  }
}

template <typename T>
void StreamPiece(const AloneWork& work, const Piece& piece) {
  for (int64_t row = 0; row < work.size.m; ++row) {
    std::fill_n(piece.sums + row * work.sum_row, WholeLines(piece.width), 0.0f);
  }
  int64_t row = 0;
  for (; row + 8 <= work.size.m; row += 8) StripRows<T>(work, piece, row);
  for (; row + 4 <= work.size.m; row += 4) StreamRows<T, 4>(work, piece, row);
  for (; row + 2 <= work.size.m; row += 2) StreamRows<T, 2>(work, piece, row);
  for (; row < work.size.m; ++row) StreamRow<T>(work, piece, row);
}

// Piece `index` of a product whose columns are cut in pieces of `columns`.
void AlonePiece(const AloneWork& work, int64_t columns, int64_t index) {
  const int64_t segment = index % kAloneSegments;
  Piece piece;
  piece.first_k = SegmentBegin(work.size.k, segment);
  piece.last_k = SegmentBegin(work.size.k, segment + 1);
  piece.column = index / kAloneSegments * columns;
  piece.width = std::min(columns, work.size.n - piece.column);
  piece.sums = work.scratch + segment * work.size.m * work.sum_row + piece.column;
  if (work.b.half) {
    StreamPiece<uint16_t>(work, piece);
  } else {
    StreamPiece<float>(work, piece);
  }
}

// Row `row` of c from the sums of all segments.
void AloneSum(const AloneWork& work, int64_t row) {
  const FloatTag d;
  float* sums = work.scratch + row * work.sum_row;
  for (int64_t j = 0; j < work.size.n; j += LaneCount()) {
    FloatVec sum = hn::Load(d, sums + j);
    for (int64_t segment = 1; segment < kAloneSegments; ++segment) {
      sum = hn::Add(sum, hn::Load(d, sums + segment * work.size.m * work.sum_row + j));
    }
    hn::Store(sum, d, sums + j);
  }
  PutRow(work, row, 0, work.size.n, sums);
}

// ---- many rows ----

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kPanelVectors = 2;
#else
constexpr int kPanelVectors = 4;
#endif
// As many as registers hold the sums of: a panel is read from the second cache once for all of
// them.
constexpr int kPanelRows = 6;

// panel [k, kPanelColumns] = the columns of b, zeros behind the last.
template <typename T>
void PackPanel(const AloneWork& work, int64_t column, int64_t width, float* panel) {
  const FloatTag d;
  const T* b = static_cast<const T*>(work.b.data) + column * work.b.column_stride;
  for (int64_t k = 0; k < work.size.k; ++k) {
    const T* from = b + k * work.b.row_stride;
    float* to = panel + k * kPanelColumns;
    if (work.b.column_stride != 1) {
      for (int64_t j = 0; j < width; ++j) to[j] = Wide(from[j * work.b.column_stride]);
      std::fill(to + width, to + kPanelColumns, 0.0f);
      continue;
    }
    for (int64_t j = 0; j < kPanelColumns; j += LaneCount()) {
      const int64_t left = std::max<int64_t>(0, width - j);
      hn::Store(left > 0 ? LoadWideLanes(d, from + j, left) : hn::Zero(d), d, to + j);
    }
  }
}

// out [kRows, kPanelColumns] = a segment of k, or out plus that if it is not the first, from the
// columns at `first` on, kPanelVectors vectors of them.
template <int kRows>
HWY_INLINE void PanelProduct(const AloneWork& work, int64_t row, int64_t segment,
                             const float* panel, int64_t first, float* out) {
  const FloatTag d;
  const int64_t lanes = LaneCount();
  const float* HWY_RESTRICT a = work.a + row * work.a_row;
  const int64_t begin = SegmentBegin(work.size.k, segment);
  const int64_t end = SegmentBegin(work.size.k, segment + 1);
  const float* HWY_RESTRICT b = panel + begin * kPanelColumns + first;
  FloatVec sums[kRows][kPanelVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kPanelVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t k = begin; k < end; ++k) {
    FloatVec line[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) line[v] = hn::Load(d, b + v * lanes);
    for (int i = 0; i < kRows; ++i) {
      const FloatVec factor = hn::Set(d, a[i * work.a_row + k]);
      for (int v = 0; v < kPanelVectors; ++v) {
        sums[i][v] = hn::MulAdd(factor, line[v], sums[i][v]);
      }
    }
    b += kPanelColumns;
  }
  // Unrolled whole, like the loops above: an array whose index is not constant lives in memory.
  HWY_UNROLL(6)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kPanelVectors; ++v) {
      float* at = out + i * kPanelColumns + first + v * lanes;
      hn::Store(segment == 0 ? sums[i][v] : hn::Add(hn::Load(d, at), sums[i][v]), d, at);
    }
  }
}

template <int kRows>
void PanelRows(const AloneWork& work, int64_t row, int64_t column, int64_t width,
               const float* panel, float* out) {
  for (int64_t first = 0; first < width; first += kPanelVectors * LaneCount()) {
    for (int64_t segment = 0; segment < kAloneSegments; ++segment) {
      PanelProduct<kRows>(work, row, segment, panel, first, out);
    }
  }
  for (int i = 0; i < kRows; ++i) PutRow(work, row + i, column, width, out + i * kPanelColumns);
}

template <typename T>
void Panels(const AloneWork& work) {
  float* out = work.scratch;
  float* panel = out + kPanelRows * kPanelColumns;
  for (int64_t column = 0; column < work.size.n; column += kPanelColumns) {
    const int64_t width = std::min(kPanelColumns, work.size.n - column);
    PackPanel<T>(work, column, width, panel);
    int64_t row = 0;
    for (; row + kPanelRows <= work.size.m; row += kPanelRows) {
      PanelRows<kPanelRows>(work, row, column, width, panel, out);
    }
    for (; row + 2 <= work.size.m; row += 2) {
      PanelRows<2>(work, row, column, width, panel, out);
    }
    for (; row < work.size.m; ++row) PanelRows<1>(work, row, column, width, panel, out);
  }
}

// ---- both along k ----

template <typename T, int kRows, int kColumns>
HWY_INLINE void DotBlock(const AloneWork& work, int64_t row, int64_t column, float* out) {
  const FloatTag d;
  const float* a = work.a + row * work.a_row;
  const T* b = static_cast<const T*>(work.b.data) + column * work.b.column_stride;
  FloatVec sums[kRows][kColumns];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::Zero(d);
  }
  for (int64_t k = 0; k < work.size.k; k += LaneCount()) {
    const int64_t left = work.size.k - k;
    // Columns lie one behind the other: what is asked for is of one of the next.
    if (kRows == 1) {
      __builtin_prefetch(reinterpret_cast<const char*>(b + k) + kAheadBytes, 0, 2);
    }
    FloatVec of_b[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      of_b[j] = LoadWideLanes(d, b + j * work.b.column_stride + k, left);
    }
    for (int i = 0; i < kRows; ++i) {
      const FloatVec of_a = LoadWideLanes(d, a + i * work.a_row + k, left);
      for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::MulAdd(of_a, of_b[j], sums[i][j]);
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kColumns; ++j)
      out[i * kLineFloats + j] = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
  }
}

template <typename T, int kRows>
void DotRows(const AloneWork& work, int64_t row, int64_t column, int64_t width) {
  float* out = work.scratch;
  int64_t j = 0;
  // For one row memory is what takes time, and it gives out one run of bytes fastest.
  for (; kRows > 1 && j + 4 <= width; j += 4) DotBlock<T, kRows, 4>(work, row, column + j, out + j);
  for (; j < width; ++j) DotBlock<T, kRows, 1>(work, row, column + j, out + j);
  for (int i = 0; i < kRows; ++i) PutRow(work, row + i, column, width, out + i * kLineFloats);
}

template <typename T>
void Dots(const AloneWork& work) {
  for (int64_t column = 0; column < work.size.n; column += kLineFloats) {
    const int64_t width = std::min(kLineFloats, work.size.n - column);
    int64_t row = 0;
    for (; row + 4 <= work.size.m; row += 4) DotRows<T, 4>(work, row, column, width);
    for (; row < work.size.m; ++row) DotRows<T, 1>(work, row, column, width);
  }
}

template <typename T>
void ProductOf(const AloneWork& work, bool along_k) {
  if (along_k) return Dots<T>(work);
  Panels<T>(work);
}

void AloneProduct(const AloneWork& work, bool along_k) {
  if (work.b.half) {
    ProductOf<uint16_t>(work, along_k);
  } else {
    ProductOf<float>(work, along_k);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(AloneProduct);
HWY_EXPORT(AlonePiece);
HWY_EXPORT(AloneSum);

namespace {

constexpr int64_t kStreamSums = 32768;  // of all rows, per segment
constexpr int64_t kPanelSums = 6 * 64;
constexpr int64_t kDotSums = 4 * 16;

AloneOperand Transposed(const AloneOperand& x) {
  return {x.data, x.column_stride, x.row_stride, x.half};
}

// a [m, k] in f32, rows apart by `row_stride`.
void CopyWide(const AloneOperand& a, int64_t m, int64_t k, int64_t row_stride, float* out) {
  for (int64_t i = 0; i < m; ++i) {
    float* to = out + i * row_stride;
    if (a.half && a.column_stride == 1) {
      VecWiden(static_cast<const uint16_t*>(a.data) + i * a.row_stride, to, k);
      continue;
    }
    for (int64_t j = 0; j < k; ++j) {
      const int64_t at = i * a.row_stride + j * a.column_stride;
      if (a.half) {
        VecWiden(static_cast<const uint16_t*>(a.data) + at, to + j, 1);
      } else {
        to[j] = static_cast<const float*>(a.data)[at];
      }
    }
  }
}

// Few rows: pieces of the columns, each with the sums of all segments in the thread's scratch.
void Stream(AloneWork work, const AloneTeam& team) {
  const int64_t columns = work.size.n;
  const int64_t most = kStreamSums / work.size.m;
  const char* b = static_cast<const char*>(work.b.data);
  char* c = static_cast<char*>(work.c.data);
  for (int64_t column = 0; column < columns; column += most) {
    work.size.n = std::min(most, columns - column);
    work.sum_row = WholeLines(work.size.n);
    work.b.data = b + column * (work.b.half ? 2 : 4);
    work.c.data = c + column * (work.c.half ? 2 : 4);
    const int64_t cuts = std::max<int64_t>(1, team.threads / kAloneSegments);
    const int64_t width = WholeLines((work.size.n + cuts - 1) / cuts);
    const int64_t pieces = (work.size.n + width - 1) / width;
    team.run(pieces * kAloneSegments, [&](int64_t index) {
      HWY_DYNAMIC_DISPATCH(AlonePiece)(work, width, index);
    });
    for (int64_t row = 0; row < work.size.m; ++row) HWY_DYNAMIC_DISPATCH(AloneSum)(work, row);
  }
}

// Columns of b in a piece for each thread.
void Dots(const AloneWork& work, const AloneTeam& team) {
  const int64_t width = WholeLines((work.size.n + team.threads - 1) / team.threads);
  team.run((work.size.n + width - 1) / width, [&](int64_t index) {
    AloneWork piece = work;
    const int64_t column = index * width;
    piece.size.n = std::min(width, work.size.n - column);
    piece.b.data = static_cast<const char*>(work.b.data) +
                   column * work.b.column_stride * (work.b.half ? 2 : 4);
    piece.c.data = static_cast<char*>(work.c.data) + column * (work.c.half ? 2 : 4);
    piece.scratch += index * kDotSums;
    HWY_DYNAMIC_DISPATCH(AloneProduct)(piece, true);
  });
}

}  // namespace

AloneTeam NoTeam() {
  static constexpr auto kRun = [](int64_t count, FunctionRef<void(int64_t)> piece) {
    for (int64_t index = 0; index < count; ++index) piece(index);
  };
  return {1, kRun};
}

void VecAloneProduct(GemmSize size, AloneOperand a, AloneOperand b, AloneResult c, bool accumulate,
                     const AloneTeam& team) {
  if (size.m == 0 || size.n == 0) return;
  if (c.column_stride != 1 && size.n > 1) {
    std::swap(size.m, size.n);
    std::swap(a, b);
    a = Transposed(a);
    b = Transposed(b);
    std::swap(c.row_stride, c.column_stride);
  }
  const bool along_k = a.column_stride == 1 && b.row_stride == 1;
  const bool streams = !along_k && size.m <= kFewRows && b.column_stride == 1;
  const bool copies = a.half || a.column_stride != 1;
  const int64_t a_row = copies ? WholeLines(size.k) : a.row_stride;
  const int64_t copy = copies ? size.m * a_row : 0;
  // A panel lies behind its sums.
  const int64_t sums = streams   ? kAloneSegments * (kStreamSums + kFewRows * 16)
                       : along_k ? team.threads * kDotSums
                                 : kPanelSums + size.k * 64;
  float* scratch = ThreadScratch(copy + sums);
  if (copies) CopyWide(a, size.m, size.k, a_row, scratch);
  AloneWork work;
  work.size = size;
  work.a = copies ? scratch : static_cast<const float*>(a.data);
  work.a_row = a_row;
  work.b = b;
  work.c = c;
  work.accumulate = accumulate;
  work.scratch = scratch + copy;
  if (streams) return Stream(work, team);
  if (along_k && team.threads > 1) return Dots(work, team);
  HWY_DYNAMIC_DISPATCH(AloneProduct)(work, along_k);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
