#include "ops/cpu/vec_few.h"

#include <algorithm>
#include <array>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_few.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

// Sums in registers: 12 of 16, with AVX-512 24 of 32. Factors x vectors of a block whose vectors
// are of a, and of one whose vectors are of b.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kFewFactors = 6, kFewVectors = 2;
constexpr int kFewRows = 6, kFewColumnVectors = 2;
#else
constexpr int kFewFactors = 6, kFewVectors = 4;
constexpr int kFewRows = 8, kFewColumnVectors = 3;
#endif
constexpr int64_t kFewLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
constexpr int64_t kFewColumns = kFewColumnVectors * kFewLanes;
constexpr int64_t kLine = 16;  // floats of a line of memory

// The numbers that one step of a block multiplies: pointers that walk along k.
template <int kCount>
using Walks = std::array<const float*, kCount>;

// Rows [first, first + kCount) of x at k = 0; rows at and behind `rows` are the last one again, so
// that a block is always whole.
template <int kCount>
HWY_INLINE Walks<kCount> RowsOf(const float* x, int64_t stride, int64_t first, int64_t rows) {
  Walks<kCount> walks;
  for (int i = 0; i < kCount; ++i) walks[i] = x + std::min(first + i, rows - 1) * stride;
  return walks;
}

// out[factor][vector lane] = sum over k of the factor's row times `vectors`, which are packed.
template <int kVectors>
HWY_INLINE void AcrossBlock(const Walks<kFewFactors>& factors, const float* HWY_RESTRICT vectors,
                            int64_t depth, float* HWY_RESTRICT out) {
  const FloatTag d;
  FloatVec sums[kFewFactors][kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kFewFactors; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    FloatVec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, vectors + v * kFewLanes);
    HWY_UNROLL(8)
    for (int i = 0; i < kFewFactors; ++i) {
      const FloatVec factor = hn::Set(d, factors[i][k]);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
    }
    vectors += kVectors * kFewLanes;
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kFewFactors; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[i][v], d, out + (i * kVectors + v) * kFewLanes);
    }
  }
}

// out: for each k the numbers of `rows` rows of a, filled up with zeros to whole vectors.
void PackColumns(const ConstMatrix& a, int64_t rows, int64_t depth, int64_t width, float* out) {
  constexpr int64_t kStrip = 16;  // of k, so that what is written stays in the first cache
  for (int64_t begin = 0; begin < depth; begin += kStrip) {
    const int64_t end = std::min(begin + kStrip, depth);
    for (int64_t i = 0; i < width; ++i) {
      const float* from = a.data + std::min(i, rows - 1) * a.row_stride;
      for (int64_t k = begin; k < end; ++k) out[k * width + i] = i < rows ? from[k] : 0.0f;
    }
  }
}

// Of the rows of c that `vectors` hold: all columns.
template <int kVectors>
void AcrossRows(const GemmSize& size, const float* packed, const ConstMatrix& b, const Matrix& c,
                float* block) {
  for (int64_t first = 0; first < size.n; first += kFewFactors) {
    AcrossBlock<kVectors>(RowsOf<kFewFactors>(b.data, b.column_stride, first, size.n), packed,
                          size.k, block);
    const int64_t columns = std::min<int64_t>(kFewFactors, size.n - first);
    for (int64_t i = 0; i < size.m; ++i) {
      float* to = c.data + i * c.row_stride + first;
      for (int64_t j = 0; j < columns; ++j) to[j] = block[j * kVectors * kFewLanes + i];
    }
  }
}

// b lies along k: a turns into vectors of rows, and each number of b is read once for all of them.
void FewRowsAcross(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b,
                   const Matrix& c) {
  constexpr int64_t kMost = kFewVectors * kFewLanes;
  float* const packed = ThreadScratch((size.k + kFewFactors) * kMost);
  float* const block = packed + size.k * kMost;
  for (int64_t first = 0; first < size.m; first += kMost) {
    const GemmSize part{std::min(kMost, size.m - first), size.n, size.k};
    const ConstMatrix from{a.data + first * a.row_stride, a.row_stride, 1};
    const Matrix to{c.data + first * c.row_stride, c.row_stride, 1};
    const int64_t vectors = (part.m + kFewLanes - 1) / kFewLanes;
    PackColumns(from, part.m, part.k, vectors * kFewLanes, packed);
    switch (vectors) {
      case 1:
        AcrossRows<1>(part, packed, b, to, block);
        break;
      case 2:
        AcrossRows<2>(part, packed, b, to, block);
        break;
#if !(HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3)
      case 3:
        AcrossRows<3>(part, packed, b, to, block);
        break;
      case 4:
        AcrossRows<4>(part, packed, b, to, block);
        break;
#endif
      default:
        MW_CHECK(false) << vectors << " vectors of rows";
    }
  }
}

// The columns of b that a block multiplies, and what it does for those behind it.
struct Panel {
  const float* from = nullptr;    // at k = 0
  int64_t step = 0;               // from row to row
  float* copy = nullptr;          // packed
  const float* wanted = nullptr;  // fetched: a line for each step
};

// c's block at `c`, of which rows and columns are wanted.
template <bool kCopies>
HWY_INLINE void AlongBlock(const Walks<kFewRows>& factors, Panel b, int64_t depth, const Matrix& c,
                           int64_t rows, int64_t columns, bool accumulate) {
  const FloatTag d;
  // What is written comes from memory while the sums are made.
  for (int64_t i = 0; i < std::min<int64_t>(rows, kFewRows); ++i) {
    for (int v = 0; v < kFewColumnVectors; ++v) {
      __builtin_prefetch(c.data + i * c.row_stride + v * kFewLanes, 1);
    }
  }
  FloatVec sums[kFewRows][kFewColumnVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kFewRows; ++i) {
    HWY_UNROLL(3)
    for (int v = 0; v < kFewColumnVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    __builtin_prefetch(b.wanted + k * kLine, 0, 2);
    FloatVec row[kFewColumnVectors];
    for (int v = 0; v < kFewColumnVectors; ++v) row[v] = hn::LoadU(d, b.from + v * kFewLanes);
    if constexpr (kCopies) {
      for (int v = 0; v < kFewColumnVectors; ++v) hn::Store(row[v], d, b.copy + v * kFewLanes);
      b.copy += kFewColumns;
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kFewRows; ++i) {
      const FloatVec factor = hn::Set(d, factors[i][k]);
      for (int v = 0; v < kFewColumnVectors; ++v) {
        sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
      }
    }
    b.from += b.step;
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kFewRows; ++i) {
    HWY_UNROLL(3)
    for (int v = 0; v < kFewColumnVectors; ++v) {
      const int64_t left = columns - v * kFewLanes;
      if (i >= rows || left <= 0) continue;
      const auto count = static_cast<size_t>(std::min(kFewLanes, left));
      float* to = c.data + i * c.row_stride + v * kFewLanes;
      const FloatVec old = accumulate ? LoadLanes(d, to, count) : hn::Zero(d);
      StoreLanes(hn::Add(old, sums[i][v]), d, to, count);
    }
  }
}

// The last columns, of which there are too few for a block: filled up with zeros.
void PackLast(const ConstMatrix& b, int64_t depth, int64_t columns, float* out) {
  for (int64_t k = 0; k < depth; ++k, out += kFewColumns) {
    std::copy_n(b.data + k * b.row_stride, columns, out);
    std::fill(out + columns, out + kFewColumns, 0.0f);
  }
}

// Rows of b lie along columns. The first rows of c copy the columns they read for the rows behind
// them. Whole rows of b are fetched, some at a time and beside the products, since memory is slow
// where each of its pages is asked for little.
void FewRowsAlong(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b,
                  const Matrix& c) {
  constexpr int64_t kDepth = 128;
  constexpr int64_t kMostColumns = 1024 / kFewColumns * kFewColumns;
  float* packed = ThreadScratch(kDepth * kFewColumns);
  for (int64_t left = 0; left < size.n; left += kMostColumns) {
    const int64_t end = std::min(size.n, left + kMostColumns);
    const int64_t lines = (end - left + kLine - 1) / kLine;
    for (int64_t k = 0; k < size.k; k += kDepth) {
      const int64_t depth = std::min(kDepth, size.k - k);
      const int64_t next = std::min(kDepth, size.k - k - depth);
      const float* from = b.data + k * b.row_stride;
      int64_t fetched = 0;  // lines of the next rows
      for (int64_t column = left; column < end; column += kFewColumns) {
        const bool whole = column + kFewColumns <= end;
        if (!whole) PackLast({from + column, b.row_stride, 1}, depth, end - column, packed);
        for (int64_t row = 0; row < size.m; row += kFewRows) {
          Panel panel{packed, kFewColumns, packed, from};
          if (fetched < lines * next) {
            panel.wanted +=
                (depth + fetched / lines) * b.row_stride + left + fetched % lines * kLine;
            fetched += depth;
          }
          const auto factors = RowsOf<kFewRows>(a.data + k, a.row_stride, row, size.m);
          const Matrix to{c.data + row * c.row_stride + column, c.row_stride, 1};
          if (whole && row == 0) {
            panel.from = from + column;
            panel.step = b.row_stride;
            AlongBlock<true>(factors, panel, depth, to, size.m - row, end - column, k > 0);
          } else {
            AlongBlock<false>(factors, panel, depth, to, size.m - row, end - column, k > 0);
          }
        }
      }
    }
    for (int64_t i = 0; size.k == 0 && i < size.m; ++i) {
      std::fill_n(c.data + i * c.row_stride + left, end - left, 0.0f);
    }
  }
}

void FewRows(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b, const Matrix& c) {
  if (b.column_stride == 1) {
    FewRowsAlong(size, a, b, c);
  } else {
    FewRowsAcross(size, a, b, c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(FewRows);

void VecFewRows(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b, const Matrix& c) {
  MW_CHECK(size.m <= kMostFewRows) << size.m << " rows are not few";
  MW_CHECK(b.column_stride == 1 || b.row_stride == 1)
      << "b has strides " << b.row_stride << "," << b.column_stride;
  if (size.m == 0 || size.n == 0) return;
  HWY_DYNAMIC_DISPATCH(FewRows)(size, a, b, c);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
