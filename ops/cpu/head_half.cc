#include "ops/cpu/head_half.h"

#include <algorithm>

#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

// Sizes of the tiles: the first ones' and the last one's.
int64_t TileSize(int64_t count, int64_t tile, int64_t index) {
  return std::min(tile, count - index * tile);
}

size_t IsLast(int64_t count, int64_t tile, int64_t index) {
  return TileSize(count, tile, index) == tile ? 0 : 1;
}

}  // namespace

std::optional<HalfHead> HalfHead::Make(const HeadSizes& sizes, bool gradient) {
  HalfHead head(sizes);
  const int64_t whole = std::min(sizes.block, sizes.tokens);
  if (!head.Build(whole, gradient)) return std::nullopt;
  const int64_t rest = sizes.tokens % whole;
  if (rest != 0 && !head.Build(rest, gradient)) return std::nullopt;
  return head;
}

bool HalfHead::Build(int64_t rows, bool gradient) {
  const int64_t d = sizes_.width;
  const int64_t v = sizes_.vocabulary;
  const auto f32 = ir::DType::kF32;
  Products made;
  made.rows = rows;
  for (const int64_t tile : {int64_t{0}, CountTiles(v, kVocabularyTile) - 1}) {
    const int64_t size = TileSize(v, kVocabularyTile, tile);
    const size_t last = IsLast(v, kVocabularyTile, tile);
    made.logits[last] = HalfGemm::Make({{rows, size, d}, {d, 1}, {1, d}, {v, 1}, f32, false});
    if (!made.logits[last]) return false;
    for (const bool accumulate : {false, true}) {
      if (!gradient) break;
      std::optional<HalfGemm>& weight = made.weight[last][accumulate ? 1 : 0];
      weight = HalfGemm::Make({{size, d, rows}, {1, 2 * v}, {d, 1}, {d, 1}, f32, accumulate});
      if (!weight) return false;
    }
  }
  for (const int64_t tile : {int64_t{0}, CountTiles(d, kWidthTile) - 1}) {
    if (!gradient) break;
    std::optional<HalfGemm>& input = made.input[IsLast(d, kWidthTile, tile)];
    const int64_t size = TileSize(d, kWidthTile, tile);
    input = HalfGemm::Make({{rows, size, v}, {2 * v, 1}, {d, 1}, {d, 1}, f32, false});
    if (!input) return false;
  }
  products_.push_back(std::move(made));
  return true;
}

const HalfHead::Products& HalfHead::ProductsOf(int64_t rows) const {
  return products_[products_.front().rows == rows ? 0 : 1];
}

void HalfHead::Logits(const RunContext& context, int64_t rows, const uint16_t* x, const uint16_t* w,
                      float* logits) const {
  const int64_t v = sizes_.vocabulary;
  const Products& products = ProductsOf(rows);
  ParallelItems(context, CountTiles(v, kVocabularyTile), [&](int64_t tile) {
    const int64_t first = tile * kVocabularyTile;
    products.logits[IsLast(v, kVocabularyTile, tile)]->Run(x, w + first * sizes_.width,
                                                           logits + first);
  });
}

void HalfHead::InputGradient(const RunContext& context, int64_t rows, const float* logits,
                             const uint16_t* w, float* dx) const {
  const auto* gradient = reinterpret_cast<const uint16_t*>(logits);
  const Products& products = ProductsOf(rows);
  ParallelItems(context, CountTiles(sizes_.width, kWidthTile), [&](int64_t tile) {
    const int64_t first = tile * kWidthTile;
    products.input[IsLast(sizes_.width, kWidthTile, tile)]->Run(gradient, w + first, dx + first);
  });
}

void HalfHead::WeightGradient(const RunContext& context, int64_t rows, const float* logits,
                              const uint16_t* x, float* dw, bool accumulate) const {
  const auto* gradient = reinterpret_cast<const uint16_t*>(logits);
  const int64_t v = sizes_.vocabulary;
  const Products& products = ProductsOf(rows);
  ParallelItems(context, CountTiles(v, kVocabularyTile), [&](int64_t tile) {
    const int64_t first = tile * kVocabularyTile;
    products.weight[IsLast(v, kVocabularyTile, tile)][accumulate ? 1 : 0]->Run(
        gradient + first, x, dw + first * sizes_.width);
  });
}

}  // namespace meshwright::ops::cpu
