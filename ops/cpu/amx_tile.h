// Squares of bf16 products with f32 sums on the processor's matrix tiles (AMX), which multiply 16
// rows of 64 bytes at a time: some five times as fast as its vectors.
//
// Idea: a square of 32 x 32 sums stays in four tiles along the whole depth. Rows on the left are
// read as they lie in memory. What stands on the right is packed before: two neighbours along the
// depth make one 32-bit word, 16 such words of 16 columns a tile. Packing reads memory in long
// rows, which tiles could not wait for.
//
// Thread rule: pure functions. REQUIRES HasAmxTiles() for all others, and AmxTiles alive in the
// calling thread for AmxSquare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace meshwright::ops::cpu {

// Rows and columns of a square, and the depth that a tile has in a row.
inline constexpr int64_t kAmxSide = 32;
// 32-bit words of a packed [kAmxSide of depth, kAmxSide] block: two tiles.
inline constexpr int64_t kAmxBlockWords = kAmxSide * kAmxSide / 2;

// Whether this processor has the tiles and the system lets us use them.
bool HasAmxTiles();
// For tests: off, products go the way of processors without tiles. Kernels made before keep theirs.
void SetAmxTiles(bool use);

// The tiles' shapes, for this thread while it lives. Tiles make a switch of threads dearer: hold it
// for an item of work, not for a thread's life.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// Rows of bf16 values somewhere in memory; null: a row of zeros.
using HalfRowList = std::span<const uint16_t* const>;

// The right side [depth, columns] of rows that are its depth, columns [first, first + count): out
// [ceil(count / kAmxSide), depth / kAmxSide, 2, 16, 16] words. REQUIRES: kAmxSide divides
// rows.size().
void PackAmxRight(HalfRowList rows, int64_t first, int64_t count, uint32_t* out);
// The same right side of rows that are its columns, each `depth` values.
void PackAmxRightTransposed(HalfRowList columns, int64_t depth, uint32_t* out);
// The left side [columns, depth] of rows that are its depth, count <= kAmxSide of columns.
void PackAmxLeft(HalfRowList rows, int64_t first, int64_t count, uint32_t* out);

// The left side of a square: a tile of 16 rows for each 32 of depth, and 16 rows below it.
struct AmxLeft {
  const void* data = nullptr;
  int64_t stride_bytes = 0;  // from row to row of a tile
  int64_t block_bytes = 0;   // from one block of the depth to the next
  int64_t below_bytes = 0;   // from the upper tile to the lower one

  static AmxLeft OfRows(const uint16_t* rows, int64_t stride) {
    return {rows, 2 * stride, 2 * kAmxSide, 32 * stride};
  }
  static AmxLeft OfPacked(const uint32_t* words) { return {words, 64, 2048, 1024}; }
};

// Where sums come from and go to: [32, 32], rows of `stride` floats. from null: they begin at zero.
struct AmxSums {
  const float* from = nullptr;
  float* to = nullptr;
  int64_t stride = kAmxSide;
};

// sums.to = sums.from + left x right, `blocks` of depth.
void AmxSquare(const AmxLeft& left, const uint32_t* right, int64_t blocks, const AmxSums& sums);

// Columns [0, count) of `rows` rows of a square's sums [32, 32], rounded to nearest even.
void AmxNarrow(const float* sums, int64_t rows, int64_t count, uint16_t* out, int64_t out_stride);

}  // namespace meshwright::ops::cpu
