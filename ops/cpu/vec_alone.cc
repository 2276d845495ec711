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

constexpr int64_t kFewRows = 8;           // so many stream through b
constexpr int64_t kStreamColumns = 4096;  // whole rows of b, which memory gives out fastest
constexpr int64_t kPanelColumns = 64;
constexpr int64_t kLine = 16;  // floats of 64 bytes

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

constexpr int64_t kSteps = 8;  // of k, per visit of a sum

// sums [kRows, kStreamColumns] += the steps of k from `k` on, in their order.
template <typename T, int kRows, int kDepth>
HWY_INLINE void StreamSteps(const AloneWork& work, int64_t row, int64_t k, int64_t column,
                            int64_t width, float* sums) {
  const FloatTag d;
  const T* b = static_cast<const T*>(work.b.data) + k * work.b.row_stride + column;
  const float* a = work.a + row * work.a_row + k;
  const int64_t lanes = LaneCount();
  for (int64_t j = 0; j < width; j += lanes) {
    FloatVec rows[kDepth];
    HWY_UNROLL(8)
    for (int s = 0; s < kDepth; ++s) {
      rows[s] = LoadWideLanes(d, b + s * work.b.row_stride + j, width - j);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      float* at = sums + i * kStreamColumns + j;
      FloatVec sum = hn::Load(d, at);
      HWY_UNROLL(8)
      for (int s = 0; s < kDepth; ++s) {
        sum = hn::MulAdd(hn::Set(d, a[i * work.a_row + s]), rows[s], sum);
      }
      hn::Store(sum, d, at);
    }
  }
}

// The same for one row: b is walked from its begin to its end, as memory likes best.
template <typename T>
void StreamOne(const AloneWork& work, int64_t row, int64_t k, int64_t column, int64_t width,
               float* sums) {
  constexpr int kAtOnce = 4;
  const FloatTag d;
  const T* HWY_RESTRICT b = static_cast<const T*>(work.b.data) + k * work.b.row_stride + column;
  const FloatVec a = hn::Set(d, work.a[row * work.a_row + k]);
  const int64_t lanes = LaneCount();
  int64_t j = 0;
  for (; j + kAtOnce * lanes <= width; j += kAtOnce * lanes) {
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
  for (; j < width; j += lanes) {
    hn::Store(hn::MulAdd(a, LoadWideLanes(d, b + j, width - j), hn::Load(d, sums + j)), d,
              sums + j);
  }
}

template <typename T, int kRows>
void StreamBlock(const AloneWork& work, int64_t row, int64_t column, int64_t width) {
  float* sums = work.scratch;
  for (int i = 0; i < kRows; ++i) std::fill_n(sums + i * kStreamColumns, width + kLine, 0.0f);
  int64_t k = 0;
  for (; kRows > 1 && k + kSteps <= work.size.k; k += kSteps) {
    StreamSteps<T, kRows, kSteps>(work, row, k, column, width, sums);
  }
  for (; kRows > 1 && k < work.size.k; ++k) {
    StreamSteps<T, kRows, 1>(work, row, k, column, width, sums);
  }
  for (; k < work.size.k; ++k) StreamOne<T>(work, row, k, column, width, sums);
  for (int i = 0; i < kRows; ++i) {
    PutRow(work, row + i, column, width, sums + i * kStreamColumns);
  }
}

// Eight rows: sums in registers over so many steps of k, whose rows of b the second cache holds
// and the steps before them have fetched.
constexpr int64_t kStripSteps = 32;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kStripVectors = 1;
#else
constexpr int kStripVectors = 3;
#endif

// sums [kFewRows, kStreamColumns] += `depth` steps of k, for kVectors vectors of columns, of which
// `width` are there.
template <typename T, int kVectors>
HWY_INLINE void Strip(const AloneWork& work, int64_t row, int64_t k, int64_t depth, const T* b,
                      int64_t width, float* sums) {
  const FloatTag d;
  const int64_t lanes = LaneCount();
  const float* HWY_RESTRICT a = work.a + row * work.a_row + k;
  FloatVec sum[kFewRows][kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kFewRows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = hn::Load(d, sums + i * kStreamColumns + v * lanes);
    }
  }
  const int64_t left = work.size.k - k;
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
      hn::Store(sum[i][v], d, sums + i * kStreamColumns + v * lanes);
    }
  }
}

template <typename T>
void StripBlock(const AloneWork& work, int64_t row, int64_t column, int64_t width) {
  float* sums = work.scratch;
  for (int i = 0; i < kFewRows; ++i) std::fill_n(sums + i * kStreamColumns, width + kLine, 0.0f);
  const int64_t wide = kStripVectors * LaneCount();
  for (int64_t k = 0; k < work.size.k; k += kStripSteps) {
    const int64_t depth = std::min(kStripSteps, work.size.k - k);
    const T* b = static_cast<const T*>(work.b.data) + k * work.b.row_stride + column;
    int64_t j = 0;
    for (; j + wide <= width; j += wide) {
      Strip<T, kStripVectors>(work, row, k, depth, b + j, wide, sums + j);
    }
    for (; j < width; j += LaneCount()) {
      Strip<T, 1>(work, row, k, depth, b + j, width - j, sums + j);
    }
  }
  for (int i = 0; i < kFewRows; ++i) {
    PutRow(work, row + i, column, width, sums + i * kStreamColumns);
  }
}

template <typename T>
void Stream(const AloneWork& work) {
  for (int64_t column = 0; column < work.size.n; column += kStreamColumns) {
    const int64_t width = std::min(kStreamColumns, work.size.n - column);
    int64_t row = 0;
    for (; row + 8 <= work.size.m; row += 8) StripBlock<T>(work, row, column, width);
    for (; row + 4 <= work.size.m; row += 4) StreamBlock<T, 4>(work, row, column, width);
    for (; row + 2 <= work.size.m; row += 2) StreamBlock<T, 2>(work, row, column, width);
    for (; row < work.size.m; ++row) StreamBlock<T, 1>(work, row, column, width);
  }
}

// ---- many rows ----

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kPanelVectors = 2;
#else
constexpr int kPanelVectors = 4;
#endif
constexpr int kPanelRows = 4;

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

// out [kRows, kPanelColumns] from the columns at `first` on, kPanelVectors vectors of them.
template <int kRows>
HWY_INLINE void PanelProduct(const AloneWork& work, int64_t row, const float* panel, int64_t first,
                             float* out) {
  const FloatTag d;
  const int64_t lanes = LaneCount();
  const float* HWY_RESTRICT a = work.a + row * work.a_row;
  const float* HWY_RESTRICT b = panel + first;
  FloatVec sums[kRows][kPanelVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kPanelVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < work.size.k; ++k) {
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
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kPanelVectors; ++v) {
      hn::Store(sums[i][v], d, out + i * kPanelColumns + first + v * lanes);
    }
  }
}

template <int kRows>
void PanelRows(const AloneWork& work, int64_t row, int64_t column, int64_t width,
               const float* panel, float* out) {
  for (int64_t first = 0; first < width; first += kPanelVectors * LaneCount()) {
    PanelProduct<kRows>(work, row, panel, first, out);
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
      out[i * kLine + j] = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
  }
}

template <typename T, int kRows>
void DotRows(const AloneWork& work, int64_t row, int64_t column, int64_t width) {
  float* out = work.scratch;
  int64_t j = 0;
  // For one row memory is what takes time, and it gives out one run of bytes fastest.
  for (; kRows > 1 && j + 4 <= width; j += 4) DotBlock<T, kRows, 4>(work, row, column + j, out + j);
  for (; j < width; ++j) DotBlock<T, kRows, 1>(work, row, column + j, out + j);
  for (int i = 0; i < kRows; ++i) PutRow(work, row + i, column, width, out + i * kLine);
}

template <typename T>
void Dots(const AloneWork& work) {
  for (int64_t column = 0; column < work.size.n; column += kLine) {
    const int64_t width = std::min(kLine, work.size.n - column);
    int64_t row = 0;
    for (; row + 4 <= work.size.m; row += 4) DotRows<T, 4>(work, row, column, width);
    for (; row < work.size.m; ++row) DotRows<T, 1>(work, row, column, width);
  }
}

template <typename T>
void ProductOf(const AloneWork& work, bool along_k) {
  if (along_k) return Dots<T>(work);
  if (work.size.m <= kFewRows && work.b.column_stride == 1) return Stream<T>(work);
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

namespace {

AloneOperand Transposed(const AloneOperand& x) {
  return {x.data, x.column_stride, x.row_stride, x.half};
}

int64_t RoundUp(int64_t count) { return (count + 15) / 16 * 16; }

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

}  // namespace

void VecAloneProduct(GemmSize size, AloneOperand a, AloneOperand b, AloneResult c,
                     bool accumulate) {
  if (size.m == 0 || size.n == 0) return;
  if (c.column_stride != 1 && size.n > 1) {
    std::swap(size.m, size.n);
    std::swap(a, b);
    a = Transposed(a);
    b = Transposed(b);
    std::swap(c.row_stride, c.column_stride);
  }
  const bool along_k = a.column_stride == 1 && b.row_stride == 1;
  const bool copies = a.half || a.column_stride != 1;
  const int64_t a_row = copies ? RoundUp(size.k) : a.row_stride;
  const int64_t copy = copies ? size.m * a_row : 0;
  constexpr int64_t kSums = 8 * 4096 + 16;  // of few rows; a panel needs less beside itself
  float* scratch = ThreadScratch(copy + kSums + size.k * 64);
  if (copies) CopyWide(a, size.m, size.k, a_row, scratch);
  const AloneWork work{
      size,          copies ? scratch : static_cast<const float*>(a.data), a_row, b, c, accumulate,
      scratch + copy};
  HWY_DYNAMIC_DISPATCH(AloneProduct)(work, along_k);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
