// head_loss: logits of one block of tokens at a time. The block's memory is a result of the node,
// so that it is in the plan; it holds the logits of a tile, for head_loss_grad then exp(logit - the
// row's largest of the tile), and at last, by a factor for each row, their gradient.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ops/cpu/copy_tensor.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/head_half.h"
#include "ops/cpu/head_products.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"
#include "ops/token_ids.h"

namespace meshwright::ops::cpu {
namespace {

// Tiles of a block whose gradient is there at once. A thread alone keeps one in its own cache; a
// team needs work for all. Results do not depend on it.
constexpr int64_t kTilesOfTeam = 8;

class FloatHeadProducts final : public HeadProducts {
 public:
  explicit FloatHeadProducts(const HeadSizes& sizes) : sizes_(sizes) {}

  void Logits(const HeadBlock& block, int64_t tile, const Tensor& x,
              const Tensor& w) const override {
    const int64_t d = sizes_.width;
    const Cut tiles = sizes_.vocabulary_tiles();
    const int64_t columns = tiles.length(tile);
    Gemm({block.rows, columns, d}, {x.as<float>() + block.first * d, d, 1},
         {w.as<float>() + tiles.begin(tile) * d, 1, d}, {block.Tile(tiles, tile), columns, 1},
         false);
  }

  void Pack(float*, int64_t) const override {}

  void InputGradient(const HeadBlock& block, int64_t tile, const InputTiles::Tile& part,
                     const Tensor& w, float* dx) const override {
    const int64_t d = sizes_.width;
    const Cut tiles = sizes_.vocabulary_tiles();
    const int64_t columns = tiles.length(tile);
    Gemm({part.rows, part.columns, columns},
         {block.Tile(tiles, tile) + part.row * columns, columns, 1},
         {w.as<float>() + tiles.begin(tile) * d + part.column, d, 1},
         {dx + (block.first + part.row) * d + part.column, d, 1}, tile > 0);
  }

  void WeightGradient(const HeadBlock& block, int64_t tile, const Tensor& x, float* dw,
                      bool accumulate) const override {
    const int64_t d = sizes_.width;
    const Cut tiles = sizes_.vocabulary_tiles();
    const int64_t columns = tiles.length(tile);
    Gemm({columns, d, block.rows}, {block.Tile(tiles, tile), 1, columns},
         {x.as<float>() + block.first * d, d, 1}, {dw + tiles.begin(tile) * d, d, 1}, accumulate);
  }

 private:
  const HeadSizes sizes_;
};

// log(sum(exp(x))) of a row from those of its tiles: the sum of a tile is that of exp(x - shift).
struct TileSum {
  float largest = 0;
  float sum = 0;

  float shift() const { return std::isinf(largest) ? 0.0f : largest; }
};

double LogSumExp(const TileSum* tiles, int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t t = 0; t < count; ++t) largest = std::max(largest, tiles[t].largest);
  if (std::isinf(largest)) return static_cast<double>(largest);
  const double shift = static_cast<double>(largest);
  double sum = 0;
  for (int64_t t = 0; t < count; ++t) {
    if (tiles[t].sum == 0) continue;  // all -inf: its shift is none
    sum +=
        static_cast<double>(tiles[t].sum) * std::exp(static_cast<double>(tiles[t].shift()) - shift);
  }
  return shift + std::log(sum);
}

class HeadLoss final : public Kernel {
 public:
  HeadLoss(const HeadSizes& sizes, int64_t ignore, bool gradient,
           std::unique_ptr<const HeadProducts> products)
      : sizes_(sizes),
        ignore_(ignore),
        gradient_(gradient),
        products_(std::move(products)),
        sums_(static_cast<size_t>(sizes.block * sizes.vocabulary_tiles().parts())),
        lse_(static_cast<size_t>(sizes.block)),
        label_logits_(static_cast<size_t>(sizes.block)) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    const int32_t* labels = inputs[2].as<int32_t>();
    MW_TRY(CheckTokenIds("head_loss", labels, sizes_.tokens, sizes_.vocabulary, ignore_));
    if (inputs.size() > 4) CopyTensor(context, inputs[4], outputs[3]);
    double loss = 0;
    int64_t count = 0;
    for (int64_t first = 0; first < sizes_.tokens; first += sizes_.block) {
      const HeadBlock block{first, std::min(sizes_.block, sizes_.tokens - first),
                            outputs[gradient_ ? 4 : 2].as<float>()};
      Logits(context, block, inputs);
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t tiles = sizes_.vocabulary_tiles().parts();
        double& lse = lse_[static_cast<size_t>(r)];
        lse = LogSumExp(&sums_[static_cast<size_t>(r * tiles)], tiles);
        if (labels[first + r] == ignore_) continue;
        loss += lse - static_cast<double>(label_logits_[static_cast<size_t>(r)]);
        ++count;
      }
      if (gradient_) Gradients(context, block, inputs, outputs);
    }
    *outputs[0].as<float>() = static_cast<float>(loss);
    *outputs[1].as<float>() = static_cast<float>(count);
    return {};
  }

 private:
  // Of the label in a tile; -1 when it is in another one.
  static int64_t ColumnOf(const Cut& tiles, int64_t tile, int32_t label) {
    const int64_t column = label - tiles.begin(tile);
    return column >= 0 && column < tiles.length(tile) ? column : -1;
  }

  // Logits, then their exponentials and sums while the tile is in a cache.
  void Logits(const RunContext& context, const HeadBlock& block, Inputs inputs) {
    const Cut tiles = sizes_.vocabulary_tiles();
    const int32_t* labels = inputs[2].as<int32_t>() + block.first;
    ParallelItems(context, tiles.parts(), [&](int64_t tile) {
      products_->Logits(block, tile, inputs[0], inputs[1]);
      const int64_t columns = tiles.length(tile);
      for (int64_t r = 0; r < block.rows; ++r) {
        float* row = block.Tile(tiles, tile) + r * columns;
        const int64_t label = ColumnOf(tiles, tile, labels[r]);
        if (label >= 0) label_logits_[static_cast<size_t>(r)] = row[label];
        TileSum& sum = sums_[static_cast<size_t>(r * tiles.parts() + tile)];
        sum.largest = VecMax(row, columns);
        sum.sum = VecExpSum(row, sum.shift(), gradient_ ? row : nullptr, columns);
      }
    });
  }

  // The exponentials of a tile become the gradient, in the form that the products read.
  void TileGradient(const HeadBlock& block, int64_t tile, const int32_t* labels,
                    float dloss) const {
    const Cut tiles = sizes_.vocabulary_tiles();
    const int64_t columns = tiles.length(tile);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* row = block.Tile(tiles, tile) + r * columns;
      if (labels[r] == ignore_) {
        std::fill_n(row, columns, 0.0f);
      } else {
        const TileSum& sum = sums_[static_cast<size_t>(r * tiles.parts() + tile)];
        // A sum of 0 is that of a tile of -inf, which need not be near the others.
        const double share =
            sum.sum == 0
                ? 0
                : std::exp(static_cast<double>(sum.shift()) - lse_[static_cast<size_t>(r)]);
        VecScale(row, static_cast<float>(static_cast<double>(dloss) * share), row, columns);
        const int64_t label = ColumnOf(tiles, tile, labels[r]);
        if (label >= 0) row[label] -= dloss;
      }
      products_->Pack(row, columns);
    }
  }

  // dx = dlogits w; dw = sum over blocks of dlogits^T x.
  void Gradients(const RunContext& context, const HeadBlock& block, Inputs inputs,
                 Outputs outputs) const {
    const float dloss = *inputs[3].as<float>();
    const bool accumulates = inputs.size() > 4 || block.first > 0;
    const int64_t tiles = sizes_.vocabulary_tiles().parts();
    const InputTiles parts(block.rows, sizes_.width);
    const Cut groups{tiles, context.team == nullptr ? 1 : kTilesOfTeam};
    for (int64_t group = 0; group < groups.parts(); ++group) {
      const int64_t first = groups.begin(group);
      const int64_t count = groups.length(group);
      ParallelItems(context, count, [&](int64_t i) {
        TileGradient(block, first + i, inputs[2].as<int32_t>() + block.first, dloss);
        products_->WeightGradient(block, first + i, inputs[0], outputs[3].as<float>(), accumulates);
      });
      ParallelItems(context, parts.count(), [&](int64_t part) {
        for (int64_t i = 0; i < count; ++i) {
          products_->InputGradient(block, first + i, parts.At(part), inputs[1],
                                   outputs[2].as<float>());
        }
      });
    }
  }

  const HeadSizes sizes_;
  const int64_t ignore_;
  const bool gradient_;
  const std::unique_ptr<const HeadProducts> products_;
  std::vector<TileSum> sums_;        // [rows, tiles] of a block
  std::vector<double> lse_;          // of the rows of a block
  std::vector<float> label_logits_;  // of the same rows
};

}  // namespace

KernelResult MakeHeadLoss(const KernelSpec& spec) {
  const int64_t tokens = Product(spec.inputs[2].dims);
  const HeadSizes sizes{tokens, spec.inputs[1].dims[1], spec.inputs[1].dims[0],
                        std::min(tokens, spec.attrs.Int("block_tokens"))};
  const bool gradient = spec.op == ir::Op::kHeadLossGrad;
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  std::unique_ptr<const HeadProducts> products =
      half ? MakeHalfHeadProducts(sizes, gradient) : std::make_unique<FloatHeadProducts>(sizes);
  if (products == nullptr) return std::unique_ptr<Kernel>();
  return std::unique_ptr<Kernel>(std::make_unique<HeadLoss>(
      sizes, spec.attrs.Int("ignore_index", kDefaultIgnoreIndex), gradient, std::move(products)));
}

}  // namespace meshwright::ops::cpu
