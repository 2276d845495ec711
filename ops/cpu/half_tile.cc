#include "ops/cpu/half_tile.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Its intrinsics begin with undefined values, which is what they mean.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace meshwright::ops::cpu {
namespace {

std::atomic<bool> use_half_instructions{true};

}  // namespace

void SetHalfInstructions(bool use) { use_half_instructions.store(use); }
bool UsesHalfInstructions() { return use_half_instructions.load(std::memory_order_relaxed); }

#if defined(__x86_64__)

#define MW_HALF_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define MW_HALF_INLINE MW_HALF_TARGET __attribute__((always_inline)) inline

namespace {

constexpr int64_t kLanes = 16;

// The sums of kRows rows and kVectors vectors of c, the last vector under `mask`.
struct HalfPanel {
  int64_t depth = 0;  // words
  WordMatrix a;
  WordMatrix b;
  Matrix c;
  __mmask16 mask = 0xffff;
  bool accumulate = false;
};

template <int kRows, int kVectors>
MW_HALF_TARGET void RunPanel(const HalfPanel& panel) {
  const uint32_t* a = panel.a.data;
  const uint32_t* b = panel.b.data;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < panel.depth; ++k) {
    __m512bh row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      row[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + v * kLanes));
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const auto factor = reinterpret_cast<__m512bh>(
          _mm512_set1_epi32(static_cast<int>(a[i * panel.a.row_stride])));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = _mm512_dpbf16_ps(sums[i][v], factor, row[v]);
      }
    }
    a += panel.a.column_stride;
    b += panel.b.row_stride;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* c = panel.c.data + i * panel.c.row_stride + v * kLanes;
      const __mmask16 mask = v + 1 < kVectors ? __mmask16{0xffff} : panel.mask;
      __m512 sum = sums[i][v];
      if (panel.accumulate) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, c));
      _mm512_mask_storeu_ps(c, mask, sum);
    }
  }
}

template <int kRows>
void RunPanelOf(int64_t vectors, const HalfPanel& panel) {
  if (vectors == 1) return RunPanel<kRows, 1>(panel);
  if (vectors == 2) return RunPanel<kRows, 2>(panel);
  if (vectors == 3) return RunPanel<kRows, 3>(panel);
  return RunPanel<kRows, 4>(panel);
}

// kRows rows of c from row `first` on. The group of kTileGrain rows decides about the depth, so
// that a row alone counts like one in a group.
template <int kRows>
void RunRows(const GemmSize& size, int64_t first, const HalfPanel& whole, TilePart part) {
  constexpr int64_t kMostVectors = 4;
  const int64_t group = first / kTileGrain * kTileGrain;
  const int64_t from = part == TilePart::kDepthFromRow ? group / 2 : 0;
  const int64_t to = part == TilePart::kDepthToRow ? (group + kTileGrain) / 2 : size.k;
  HalfPanel panel = whole;
  panel.depth = std::min(to, size.k) - from;
  panel.a.data += first * panel.a.row_stride + from * panel.a.column_stride;
  panel.b.data += from * panel.b.row_stride;
  panel.c.data += first * panel.c.row_stride;
  const int64_t skipped = part == TilePart::kColumnsFromRow ? first / kLanes * kLanes : 0;
  for (int64_t column = skipped; column < size.n; column += kMostVectors * kLanes) {
    const int64_t vectors = std::min(kMostVectors, (size.n - column + kLanes - 1) / kLanes);
    const int64_t last = std::min(kLanes, size.n - column - (vectors - 1) * kLanes);
    HalfPanel at = panel;
    at.mask = static_cast<__mmask16>((1u << last) - 1u);
    at.b.data += column;
    at.c.data += column;
    RunPanelOf<kRows>(vectors, at);
  }
}

// The words of 16 rows, 16 columns: out [16 columns, kTile]. A row beyond `rows` is 0.
MW_HALF_TARGET void TransposeBlock(const HalfRows& x, int64_t row, int64_t word, int64_t words,
                                   uint32_t* out) {
  alignas(64) uint32_t block[kLanes][kLanes];
  const int64_t count = std::min(kLanes, words - word);
  const auto mask = static_cast<__mmask16>((1u << count) - 1u);
  for (int64_t i = 0; i < kLanes; ++i) {
    const bool there = row + i < x.rows;
    const uint16_t* from = x.data + (there ? row + i : 0) * x.row_stride + 2 * word;
    const __m512i values = _mm512_maskz_loadu_epi32(there ? mask : __mmask16{0}, from);
    _mm512_store_si512(block[i], values);
  }
  const __m512i steps =
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(static_cast<int>(kLanes)));
  for (int64_t j = 0; j < count; ++j) {
    const __m512i column = _mm512_i32gather_epi32(steps, &block[0][j], 4);
    _mm512_storeu_si512(out + j * kTile, column);
  }
}

// The words (low[i], high[i]) of 16 columns.
MW_HALF_INLINE __m512i Zipped(__m256i low, __m256i high) {
  const __m512i wide = _mm512_cvtepu16_epi32(low);
  return _mm512_or_si512(wide, _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

MW_HALF_INLINE __m256i Rounded(__m512 x) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
}

}  // namespace

bool HasHalfTiles() {
  static const bool has =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  return has && UsesHalfInstructions();
}

void HalfTileProduct(const GemmSize& size, const WordMatrix& a, const WordMatrix& b,
                     const Matrix& c, TileMode mode) {
  constexpr int64_t kRowsAhead = 8;
  const HalfPanel panel{0, a, b, c, 0xffff, mode.accumulate};
  int64_t i = 0;
  for (; i + kTileGrain <= size.m; i += kTileGrain) {
    if (mode.ahead != nullptr) mode.ahead->Fetch(kRowsAhead);
    RunRows<kTileGrain>(size, i, panel, mode.part);
  }
  for (; i < size.m; ++i) RunRows<1>(size, i, panel, mode.part);
}

void HalfTileTranspose(const HalfRows& x, int64_t e, uint32_t* out) {
  const int64_t words = e / 2;
  for (int64_t row = 0; row < x.rows; row += kLanes) {
    for (int64_t word = 0; word < words; word += kLanes) {
      TransposeBlock(x, row, word, words, out + word * kTile + row);
    }
  }
}

MW_HALF_TARGET void HalfTileZip(const HalfRows& x, int64_t e, uint32_t* out) {
  const int64_t width = PaddedWidth(e);
  for (int64_t i = 0; i < x.rows; i += 2) {
    const uint16_t* low = x.data + i * x.row_stride;
    const bool alone = i + 1 == x.rows;
    for (int64_t j = 0; j < width; j += kLanes) {
      const int64_t count = std::max<int64_t>(0, std::min(kLanes, e - j));
      const auto mask = static_cast<__mmask16>((1u << count) - 1u);
      const __m256i first = _mm256_maskz_loadu_epi16(mask, low + j);
      const __m256i second = _mm256_maskz_loadu_epi16(alone ? __mmask16{0} : mask,
                                                      low + (alone ? 0 : x.row_stride) + j);
      _mm512_storeu_si512(out + i / 2 * width + j, Zipped(first, second));
    }
  }
}

MW_HALF_TARGET void HalfTileZip(const float* x, int64_t rows, uint32_t* out) {
  for (int64_t i = 0; i < rows; i += 2) {
    const float* low = x + i * kTile;
    for (int64_t j = 0; j < kTile; j += kLanes) {
      const __m512 second = i + 1 < rows ? _mm512_loadu_ps(low + kTile + j) : _mm512_setzero_ps();
      _mm512_storeu_si512(out + i / 2 * kTile + j,
                          Zipped(Rounded(_mm512_loadu_ps(low + j)), Rounded(second)));
    }
  }
}

MW_HALF_TARGET void HalfNarrow(const float* x, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), Rounded(_mm512_loadu_ps(x + i)));
  }
  if (i == count) return;
  const auto mask = static_cast<__mmask16>((1u << (count - i)) - 1u);
  _mm256_mask_storeu_epi16(out + i, mask, Rounded(_mm512_maskz_loadu_ps(mask, x + i)));
}

#else  // no such instructions

bool HasHalfTiles() { return false; }

namespace {
void Unreachable() { MW_CHECK(false) << "HasHalfTiles() is false on this processor"; }
}  // namespace

void HalfTileProduct(const GemmSize&, const WordMatrix&, const WordMatrix&, const Matrix&,
                     TileMode) {
  Unreachable();
}
void HalfTileTranspose(const HalfRows&, int64_t, uint32_t*) { Unreachable(); }
void HalfTileZip(const HalfRows&, int64_t, uint32_t*) { Unreachable(); }
void HalfTileZip(const float*, int64_t, uint32_t*) { Unreachable(); }
void HalfNarrow(const float*, uint16_t*, int64_t) { Unreachable(); }

#endif

}  // namespace meshwright::ops::cpu
