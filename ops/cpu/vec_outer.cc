#include "ops/cpu/vec_outer.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_outer.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

// A block of c in registers: 12 of 16 registers, with AVX-512 24 of 32.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = 2;
#else
constexpr int kBlockRows = 8;
constexpr int kBlockVectors = 3;
#endif

constexpr int64_t kBlockColumns = kBlockVectors * static_cast<int64_t>(hn::MaxLanes(FloatTag()));

// out: for each group of kWidth columns, the rows of x in it; the last group ends with zeros.
template <int64_t kWidth>
HWY_INLINE void PackGroups(const ConstMatrix& x, int64_t rows, int64_t columns, float* out) {
  for (int64_t first = 0; first < columns; first += kWidth) {
    const int64_t count = std::min(kWidth, columns - first);
    const float* from = x.data + first;
    for (int64_t i = 0; i < rows; ++i, from += x.row_stride, out += kWidth) {
      if (HWY_LIKELY(count == kWidth)) {
        std::memcpy(out, from, kWidth * sizeof(float));
      } else {
        std::copy_n(from, count, out);
        std::fill(out + count, out + kWidth, 0.0f);
      }
    }
  }
}

// The block of c at `c`, of which rows and columns are wanted, from a group of a and one of b.
HWY_INLINE void Block(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                      const Matrix& c, int64_t rows, int64_t columns, bool accumulate) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // What is written comes from memory while the sums are made.
  for (int64_t i = 0; i < std::min<int64_t>(rows, kBlockRows); ++i) {
    for (int v = 0; v < kBlockVectors; ++v) {
      __builtin_prefetch(c.data + i * c.row_stride + v * lanes, 1);
    }
  }
  FloatVec sums[kBlockRows][kBlockVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kBlockRows; ++i) {
    HWY_UNROLL(3)
    for (int v = 0; v < kBlockVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    FloatVec row[kBlockVectors];
    for (int v = 0; v < kBlockVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
    HWY_UNROLL(8)
    for (int i = 0; i < kBlockRows; ++i) {
      const FloatVec factor = hn::Set(d, a[i]);
      for (int v = 0; v < kBlockVectors; ++v) sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
    }
    a += kBlockRows;
    b += kBlockVectors * lanes;
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kBlockRows; ++i) {
    HWY_UNROLL(3)
    for (int v = 0; v < kBlockVectors; ++v) {
      const int64_t left = columns - v * lanes;
      if (i >= rows || left <= 0) continue;
      const auto count = static_cast<size_t>(std::min(lanes, left));
      float* to = c.data + i * c.row_stride + v * lanes;
      const FloatVec old = accumulate ? LoadLanes(d, to, count) : hn::Zero(d);
      StoreLanes(hn::Add(old, sums[i][v]), d, to, count);
    }
  }
}

void OuterProduct(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b, const Matrix& c,
                  bool accumulate) {
  constexpr int64_t kWidth = kBlockColumns;
  const int64_t row_groups = (size.m + kBlockRows - 1) / kBlockRows;
  const int64_t column_groups = (size.n + kWidth - 1) / kWidth;
  float* const packed_b =
      ThreadScratch(size.k * (column_groups * kWidth + row_groups * kBlockRows));
  float* const packed_a = packed_b + size.k * column_groups * kWidth;
  PackGroups<kWidth>(b, size.k, size.n, packed_b);
  PackGroups<kBlockRows>(a, size.k, size.m, packed_a);
  for (int64_t i = 0; i < row_groups; ++i) {
    const int64_t first_row = i * kBlockRows;
    for (int64_t j = 0; j < column_groups; ++j) {
      const Matrix at{c.data + first_row * c.row_stride + j * kWidth, c.row_stride, 1};
      Block(packed_a + i * size.k * kBlockRows, packed_b + j * size.k * kWidth, size.k, at,
            size.m - first_row, size.n - j * kWidth, accumulate);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(OuterProduct);

void VecOuterProduct(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b,
                     const Matrix& c, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(OuterProduct)(size, a, b, c, accumulate);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
