// Vector kernels over square tiles of attention: small matrix products, the online softmax and the
// gradient of the scores, compiled for several instruction sets and chosen at run time.
//
// Idea: scores are held transposed, [keys, kTile], one query per lane. Then the maximum and the sum
// over keys need no work across lanes, k and v are read as they lie in memory, and a tile of
// probabilities is the left operand of a product either way round. In a tile on the diagonal of a
// causal mask query i sees the keys j <= i; the rest is skipped in steps of kTileGrain.
//
// Tiles are rows of kTile floats, or of PaddedWidth(e) floats where a row is a token, and start at
// 64-byte boundaries. Sums run in an order that depends on shapes only. Thread rule: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/gemm.h"

namespace meshwright::ops::cpu {

// Queries per tile and keys per block: a multiple of the lanes of every vector, and small enough
// that the operands of a product stay in the first two caches.
inline constexpr int64_t kTile = 64;
// Rows that a product computes together.
inline constexpr int64_t kTileGrain = 4;

// `width` rounded up to whole vectors of any instruction set.
constexpr int64_t PaddedWidth(int64_t width) {
  constexpr int64_t kLineFloats = 16;  // 64 bytes
  return (width + kLineFloats - 1) / kLineFloats * kLineFloats;
}

enum class TilePart : uint8_t {
  kWhole,
  kColumnsFromRow,  // c(i, j) is wanted for j >= i only; the rest is undefined
  kDepthToRow,    // a(i, k) counts for k <= i; it is 0 from there to the next multiple of the grain
  kDepthFromRow,  // a(i, k) counts for k >= i; it is 0 from the multiple of the grain before
};

// Rows of tensors that later tiles touch. Products bring some of them into the second-level cache
// between their own rows: the rows of a head lie apart, so that the hardware does not foresee them,
// and all at once they would make the core wait.
class RowQueue {
 public:
  explicit RowQueue(int64_t width_bytes) : width_bytes_(width_bytes) {}

  // Rows that find no place are left out.
  template <typename T>
  void Add(const T* data, int64_t row_stride, int64_t rows) {
    if (count_ == kCapacity) return;
    entries_[count_++] = {reinterpret_cast<const std::byte*>(data),
                          row_stride * static_cast<int64_t>(sizeof(T)), rows};
  }

  // Asks for the next `rows` rows.
  void Fetch(int64_t rows) {
    constexpr int64_t kLineBytes = 64;
    for (; rows > 0 && next_ < count_; --rows) {
      Entry& entry = entries_[next_];
      for (int64_t j = 0; j < width_bytes_; j += kLineBytes) {
        __builtin_prefetch(entry.data + j, 0, 2);
      }
      entry.data += entry.row_stride_bytes;
      if (--entry.rows == 0) ++next_;
    }
    if (next_ == count_) next_ = count_ = 0;
  }

 private:
  struct Entry {
    const std::byte* data = nullptr;
    int64_t row_stride_bytes = 0;
    int64_t rows = 0;  // left
  };
  static constexpr int kCapacity = 8;  // tensors of the backward pass but lse
  const int64_t width_bytes_;
  Entry entries_[kCapacity];
  int next_ = 0;
  int count_ = 0;
};

struct TileMode {
  TilePart part = TilePart::kWhole;
  bool accumulate = false;
  RowQueue* ahead = nullptr;
};

// c[m, n] = a[m, k] * b[k, n], plus c's old content when it accumulates.
// REQUIRES: a has stride one in one dim, b and c along columns; the rows of b can be read up to
// PaddedWidth(n).
void VecTileProduct(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b,
                    const Matrix& c, TileMode mode);

// out [columns, kTile] = x^T of x [rows, columns]; lanes from `rows` to PaddedWidth(rows) are 0.
// REQUIRES: rows <= kTile, x.column_stride == 1.
void VecTileTranspose(const ConstMatrix& x, int64_t rows, int64_t columns, float* out);

// out [rows, PaddedWidth(columns)] = x [rows, columns] and zeros.
void VecTilePack(const ConstMatrix& x, int64_t rows, int64_t columns, float* out);

// x[i, :width] *= factors[i]
void VecTileScaleRows(const float* factors, int64_t rows, int64_t width, float* x);

// One block of keys against one tile of queries.
struct TileBlock {
  int64_t keys = 0;
  int64_t queries = 0;
  bool diagonal = false;  // query i sees the keys j <= i, otherwise all
};

// What a tile of queries knows about the keys so far; each [kTile].
struct SoftmaxState {
  float* max = nullptr;      // of the scores, as they are; -inf before the first block
  float* sum = nullptr;      // of exp(scale * (score - max)); 0 before the first block
  float* rescale = nullptr;  // out: what sums over earlier blocks are to be multiplied by
};

// scores [keys, kTile] = exp(scale * (score - max)) with the new maximum, 0 where a query does not
// see a key.
void VecTileSoftmax(const TileBlock& block, float scale, float* scores, const SoftmaxState& state);

struct ScoreGradTile {
  float scale = 1;
  const float* lse = nullptr;      // [kTile]
  const float* d = nullptr;        // [kTile], do.o of each query
  const float* factors = nullptr;  // [keys, kTile] of dropout, or null
  float* p = nullptr;              // [keys, kTile] scores; out: probabilities times factors
  float* ds = nullptr;             // [keys, kTile] do.v; out: gradient of q.k
};
void VecTileScoreGrad(const TileBlock& block, const ScoreGradTile& tile);

// x [keys, kTile] *= y.
void VecTileMul(const TileBlock& block, const float* y, float* x);

}  // namespace meshwright::ops::cpu
