// Tiles of attention in bf16: products of 16-bit values with f32 sums, on processors that have an
// instruction for them (AVX-512 BF16). Others widen and use ops/cpu/vec_tile.h.
//
// Idea: two neighbours along the depth of a product make one 32-bit word, which the instruction
// multiplies and adds pairwise. A bf16 row read as words is such an operand as it lies in memory;
// its transpose is that of the words; and where the depth runs over rows, two rows are zipped.
//
// Thread rule: pure functions. REQUIRES HasHalfTiles() for all others.
#pragma once

#include <cstdint>

#include "ops/cpu/vec_tile.h"

namespace meshwright::ops::cpu {

// Whether this processor has the instruction and may use it.
bool HasHalfTiles();

// For tests: off, everything goes the way of processors without bf16. Kernels made before keep
// their products.
void SetHalfInstructions(bool use);
bool UsesHalfInstructions();

// Element (i, k) is the word of the depths 2k and 2k + 1 at data[i * row_stride + k *
// column_stride].
struct WordMatrix {
  const uint32_t* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};

// Rows of e bf16 values.
struct HalfRows {
  const uint16_t* data = nullptr;
  int64_t row_stride = 0;
  int64_t rows = 0;
};

// As VecTileProduct; size.k counts words, and so does the part of the depth.
void HalfTileProduct(const GemmSize& size, const WordMatrix& a, const WordMatrix& b,
                     const Matrix& c, TileMode mode);

// out [e / 2, kTile]: the words of each row, one row per lane; lanes from x.rows to
// PaddedWidth(x.rows) are 0. REQUIRES: x.rows <= kTile, e even.
void HalfTileTranspose(const HalfRows& x, int64_t e, uint32_t* out);

// out [ceil(rows / 2), PaddedWidth(e)]: words of two rows each, a last row alone with zeros.
void HalfTileZip(const HalfRows& x, int64_t e, uint32_t* out);

// out [ceil(rows / 2), kTile]: the same for f32 rows [rows, kTile], rounded.
void HalfTileZip(const float* x, int64_t rows, uint32_t* out);

// Rounds to nearest even, as VecNarrow but subnormal numbers to zero.
void HalfNarrow(const float* x, uint16_t* out, int64_t count);

}  // namespace meshwright::ops::cpu
