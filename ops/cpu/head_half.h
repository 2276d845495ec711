// The three matrix products of a head in bf16, for one block of tokens: logits = x w^T in f32, and
// from their gradient dx = g w and dw = g^T x in f32.
//
// The gradient of a row of logits lies at the begin of that row, as bf16: rows of it are twice as
// far apart as they are long. Thread rule: immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/cpu/half_gemm.h"
#include "ops/kernel.h"

namespace meshwright::ops::cpu {

// Products of a head are cut into tiles of this many columns of v or d.
inline constexpr int64_t kVocabularyTile = 512;
inline constexpr int64_t kWidthTile = 256;
inline int64_t CountTiles(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

struct HeadSizes {
  int64_t tokens = 0;
  int64_t width = 0;       // d
  int64_t vocabulary = 0;  // v
  int64_t block = 0;       // tokens of a block
};

class HalfHead {
 public:
  // Nothing when this processor has no bf16 products.
  static std::optional<HalfHead> Make(const HeadSizes& sizes, bool gradient);

  // x [rows, d], logits [rows, v]; rows: those of a block, or of the last one.
  void Logits(const RunContext& context, int64_t rows, const uint16_t* x, const uint16_t* w,
              float* logits) const;
  // dx [rows, d]
  void InputGradient(const RunContext& context, int64_t rows, const float* logits,
                     const uint16_t* w, float* dx) const;
  // dw [v, d]; `accumulate`: it is added to.
  void WeightGradient(const RunContext& context, int64_t rows, const float* logits,
                      const uint16_t* x, float* dw, bool accumulate) const;

 private:
  explicit HalfHead(const HeadSizes& sizes) : sizes_(sizes) {}
  bool Build(int64_t rows, bool gradient);

  // For blocks of one number of rows.
  struct Products {
    int64_t rows = 0;
    std::optional<HalfGemm> logits[2];  // of a whole tile of columns; of the last one
    std::optional<HalfGemm> input[2];
    std::optional<HalfGemm> weight[2][2];  // not accumulating, accumulating
  };
  const Products& ProductsOf(int64_t rows) const;

  HeadSizes sizes_;
  std::vector<Products> products_;
};

}  // namespace meshwright::ops::cpu
