#include "ops/cpu/head_half.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "ops/cpu/half_gemm.h"
#include "ops/cpu/vec_half.h"

namespace meshwright::ops::cpu {
namespace {

class HalfHeadProducts final : public HeadProducts {
 public:
  explicit HalfHeadProducts(const HeadSizes& sizes) : sizes_(sizes) {}

  // The products of all tiles; equal ones are made once.
  bool Build(bool gradient) {
    const Cut blocks{sizes_.tokens, sizes_.block};
    const Cut tiles = sizes_.vocabulary_tiles();
    for (const int64_t block : {int64_t{0}, blocks.parts() - 1}) {
      for (const int64_t tile : {int64_t{0}, int64_t{1}, tiles.parts() - 1}) {
        if (tile >= tiles.parts()) continue;
        if (!BuildTile(blocks.length(block), tile, gradient)) return false;
      }
    }
    return true;
  }

  void Logits(const HeadBlock& block, int64_t tile, const Tensor& x,
              const Tensor& w) const override {
    const Cut tiles = sizes_.vocabulary_tiles();
    Find(kLogits, {block.rows, tiles.length(tile), sizes_.width}, false)
        .Run(RowsOf(x, block.first), RowsOf(w, tiles.begin(tile)), block.Tile(tiles, tile));
  }

  void Pack(float* gradient, int64_t count) const override {
    VecNarrow(gradient, reinterpret_cast<uint16_t*>(gradient), count);
  }

  void InputGradient(const HeadBlock& block, int64_t tile, const InputTiles::Tile& part,
                     const Tensor& w, float* dx) const override {
    const Cut tiles = sizes_.vocabulary_tiles();
    const int64_t columns = tiles.length(tile);
    Find(kInput, {part.rows, part.columns, columns}, tile > 0)
        .Run(GradientOf(block, tile) + part.row * 2 * columns,
             RowsOf(w, tiles.begin(tile)) + part.column,
             dx + (block.first + part.row) * sizes_.width + part.column);
  }

  void WeightGradient(const HeadBlock& block, int64_t tile, const Tensor& x, float* dw,
                      bool accumulate) const override {
    const Cut tiles = sizes_.vocabulary_tiles();
    Find(kWeight, {tiles.length(tile), sizes_.width, block.rows}, accumulate)
        .Run(GradientOf(block, tile), RowsOf(x, block.first),
             dw + tiles.begin(tile) * sizes_.width);
  }

 private:
  enum Kind { kLogits, kInput, kWeight };
  using Key = std::tuple<Kind, int64_t, int64_t, int64_t, bool>;

  static Key KeyOf(Kind kind, GemmSize size, bool accumulate) {
    return {kind, size.m, size.n, size.k, accumulate};
  }

  bool BuildTile(int64_t rows, int64_t tile, bool gradient) {
    const int64_t d = sizes_.width;
    const int64_t columns = sizes_.vocabulary_tiles().length(tile);
    if (!Add(kLogits, {rows, columns, d}, {{d, 1}, {1, d}, {columns, 1}}, false)) return false;
    if (!gradient) return true;
    for (const bool adds : {false, true}) {
      if (!Add(kWeight, {columns, d, rows}, {{1, 2 * columns}, {d, 1}, {d, 1}}, adds)) return false;
    }
    const InputTiles parts(rows, d);
    for (int64_t i = 0; i < parts.count(); ++i) {
      const InputTiles::Tile part = parts.At(i);
      if (!Add(kInput, {part.rows, part.columns, columns}, {{2 * columns, 1}, {d, 1}, {d, 1}},
               tile > 0)) {
        return false;
      }
    }
    return true;
  }

  struct AllStrides {
    Strides a, b, c;
  };

  bool Add(Kind kind, GemmSize size, const AllStrides& strides, bool accumulate) {
    const Key key = KeyOf(kind, size, accumulate);
    if (products_.contains(key)) return true;
    std::optional<HalfGemm> product =
        HalfGemm::Make({size, strides.a, strides.b, strides.c, ir::DType::kF32, accumulate});
    if (!product) return false;
    products_.emplace(key, std::move(*product));
    return true;
  }

  const HalfGemm& Find(Kind kind, GemmSize size, bool accumulate) const {
    return products_.at(KeyOf(kind, size, accumulate));
  }

  // Of a matrix [.., d].
  const uint16_t* RowsOf(const Tensor& matrix, int64_t row) const {
    return matrix.as<uint16_t>() + row * sizes_.width;
  }
  const uint16_t* GradientOf(const HeadBlock& block, int64_t tile) const {
    return reinterpret_cast<const uint16_t*>(block.Tile(sizes_.vocabulary_tiles(), tile));
  }

  const HeadSizes sizes_;
  std::map<Key, HalfGemm> products_;
};

}  // namespace

std::unique_ptr<const HeadProducts> MakeHalfHeadProducts(const HeadSizes& sizes, bool gradient) {
  auto products = std::make_unique<HalfHeadProducts>(sizes);
  if (!products->Build(gradient)) return nullptr;
  return products;
}

}  // namespace meshwright::ops::cpu
