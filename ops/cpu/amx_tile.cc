#include "ops/cpu/amx_tile.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "ops/cpu/half_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Its intrinsics begin with undefined values, which is what they mean.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace meshwright::ops::cpu {
namespace {

std::atomic<bool> use_amx_tiles{true};

}  // namespace

void SetAmxTiles(bool use) { use_amx_tiles.store(use); }

#if defined(__x86_64__)

#define MW_AMX_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))
#define MW_AMX_INLINE MW_AMX_TARGET __attribute__((always_inline)) inline

namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileWords = 16;  // of a row
constexpr int64_t kTileSize = kTileRows * kTileWords;

// The operand of ldtilecfg (Intel 64 manual, volume 1, chapter 18): palette 1, eight tiles of 16
// rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

// Processes must ask for the tiles' 8 KiB of state before their first use.
bool MayUseTiles() {
  constexpr long kAskPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}

bool ProcessorHasTiles() {
  unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  return (edx & kBf16) != 0 && (edx & kTile) != 0;
}

// In memory for good: compilers do not know how much of it the instruction reads.
constexpr TileShapes kShapes;

MW_AMX_TARGET void LoadShapes() { _tile_loadconfig(&kShapes); }
MW_AMX_TARGET void ReleaseTiles() { _tile_release(); }

// Rows of words, columns of them after it.
MW_AMX_INLINE void Transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// 32 values of a row under `mask`, or 16 of them.
MW_AMX_INLINE __m512i Loaded(const uint16_t* row, int64_t column, __mmask32 mask) {
  return row == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, row + column);
}
MW_AMX_INLINE __m512i Widened(const uint16_t* row, int64_t column, __mmask16 mask) {
  if (row == nullptr) return _mm512_setzero_si512();
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + column));
}

// Rows are apart, so that the hardware does not foresee them.
constexpr size_t kRowsAhead = 4;
void Fetch(const uint16_t* row, int64_t first, int64_t count) {
  constexpr int64_t kLineValues = 32;
  for (int64_t i = first; row != nullptr && i < first + count; i += kLineValues) {
    __builtin_prefetch(row + i);
  }
}

MW_AMX_INLINE __m256i Rounded(const float* x) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(x)));
}

__mmask32 WideMaskOf(int64_t count) {
  return static_cast<__mmask32>((uint64_t{1} << std::min(count, kAmxSide)) - 1);
}
__mmask16 MaskOf(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp(count, int64_t{0}, kTileWords)) - 1u);
}

}  // namespace

bool HasAmxTiles() {
  static const bool has = HasHalfTiles() && ProcessorHasTiles() && MayUseTiles();
  return has && UsesHalfInstructions() && use_amx_tiles.load(std::memory_order_relaxed);
}

AmxTiles::AmxTiles() { LoadShapes(); }
AmxTiles::~AmxTiles() { ReleaseTiles(); }

MW_AMX_TARGET void PackAmxRight(HalfRowList rows, int64_t first, int64_t count, uint32_t* out) {
  const auto depth = static_cast<int64_t>(rows.size());
  const __m512i steps = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  // Number j of both operands, or j + 32 of the second, in turn.
  const __m512i low =
      _mm512_or_si512(steps, _mm512_slli_epi32(_mm512_add_epi32(steps, _mm512_set1_epi32(32)), 16));
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t k = 0; k < depth; k += 2) {
    const auto row = static_cast<size_t>(k);
    for (size_t next = row + kRowsAhead; next < std::min(row + kRowsAhead + 2, rows.size());
         ++next) {
      Fetch(rows[next], first, count);
    }
    uint32_t* to = out + k / kAmxSide * kAmxBlockWords + k % kAmxSide / 2 * kTileWords;
    for (int64_t column = 0; column < count; column += kAmxSide, to += depth * kTileWords) {
      const __mmask32 mask = WideMaskOf(count - column);
      const __m512i even = Loaded(rows[row], first + column, mask);
      const __m512i odd = Loaded(rows[row + 1], first + column, mask);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(to + kTileSize, _mm512_permutex2var_epi16(even, high, odd));
    }
  }
}

MW_AMX_TARGET void PackAmxRightTransposed(HalfRowList columns, int64_t depth, uint32_t* out) {
  const auto count = static_cast<int64_t>(columns.size());
  for (int64_t panel = 0; panel < count; panel += kAmxSide) {
    for (int64_t k = 0; k < depth; k += kAmxSide, out += kAmxBlockWords) {
      const __mmask32 mask = WideMaskOf(depth - k);
      for (int64_t half = 0; half < 2; ++half) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kTileRows; ++i) {
          const int64_t column = panel + half * kTileRows + i;
          r[i] = Loaded(column < count ? columns[static_cast<size_t>(column)] : nullptr, k, mask);
        }
        Transpose(r);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kTileRows; ++i) {
          _mm512_storeu_si512(out + half * kTileSize + i * kTileWords, r[i]);
        }
      }
    }
  }
}

MW_AMX_TARGET void PackAmxLeft(HalfRowList rows, int64_t first, int64_t count, uint32_t* out) {
  const auto depth = static_cast<int64_t>(rows.size());
  for (int64_t block = 0; block < depth; block += kAmxSide, out += kAmxBlockWords) {
    for (int64_t half = 0; half < 2; ++half) {
      const __mmask16 mask = MaskOf(count - half * kTileRows);
      const int64_t column = first + half * kTileRows;
      __m512i r[16];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kTileRows; ++i) {
        const auto row = static_cast<size_t>(block + 2 * i);
        const __m512i odd = Widened(rows[row + 1], column, mask);
        r[i] = _mm512_or_si512(Widened(rows[row], column, mask), _mm512_slli_epi32(odd, 16));
      }
      Transpose(r);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kTileRows; ++i) {
        _mm512_storeu_si512(out + half * kTileSize + i * kTileWords, r[i]);
      }
    }
  }
}

MW_AMX_TARGET void AmxSquare(const AmxLeft& left, const uint32_t* right, int64_t blocks,
                             const AmxSums& sums) {
  constexpr int kRowBytes = 64;
  const int64_t row_bytes = sums.stride * static_cast<int64_t>(sizeof(float));
  const int64_t below = kTileRows * sums.stride;
  if (sums.from == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums.from, row_bytes);
    _tile_loadd(1, sums.from + kTileRows, row_bytes);
    _tile_loadd(2, sums.from + below, row_bytes);
    _tile_loadd(3, sums.from + below + kTileRows, row_bytes);
  }
  const auto* upper = static_cast<const std::byte*>(left.data);
  for (int64_t block = 0; block < blocks; ++block) {
    _tile_loadd(4, upper, left.stride_bytes);
    _tile_loadd(6, right, kRowBytes);
    _tile_loadd(7, right + kTileSize, kRowBytes);
    _tile_loadd(5, upper + left.below_bytes, left.stride_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    upper += left.block_bytes;
    right += kAmxBlockWords;
  }
  _tile_stored(0, sums.to, row_bytes);
  _tile_stored(1, sums.to + kTileRows, row_bytes);
  _tile_stored(2, sums.to + below, row_bytes);
  _tile_stored(3, sums.to + below + kTileRows, row_bytes);
}

MW_AMX_TARGET void AmxNarrow(const float* sums, int64_t rows, int64_t count, uint16_t* out,
                             int64_t out_stride) {
  const __mmask16 low = MaskOf(count);
  const __mmask16 high = MaskOf(count - kTileWords);
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = sums + i * kAmxSide;
    uint16_t* to = out + i * out_stride;
    _mm256_mask_storeu_epi16(to, low, Rounded(from));
    if (high != 0) _mm256_mask_storeu_epi16(to + kTileWords, high, Rounded(from + kTileWords));
  }
}

#else  // no such instructions

bool HasAmxTiles() { return false; }

namespace {
void Unreachable() { MW_CHECK(false) << "HasAmxTiles() is false on this processor"; }
}  // namespace

AmxTiles::AmxTiles() { Unreachable(); }
AmxTiles::~AmxTiles() = default;
void PackAmxRight(HalfRowList, int64_t, int64_t, uint32_t*) { Unreachable(); }
void PackAmxRightTransposed(HalfRowList, int64_t, uint32_t*) { Unreachable(); }
void PackAmxLeft(HalfRowList, int64_t, int64_t, uint32_t*) { Unreachable(); }
void AmxSquare(const AmxLeft&, const uint32_t*, int64_t, const AmxSums&) { Unreachable(); }
void AmxNarrow(const float*, int64_t, int64_t, uint16_t*, int64_t) { Unreachable(); }

#endif

}  // namespace meshwright::ops::cpu
