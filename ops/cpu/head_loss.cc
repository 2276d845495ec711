// head_loss: logits of one block of tokens at a time. The block's memory is a result of the node,
// so that it is in the plan; it holds the logits, then their gradient.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ops/cpu/copy_tensor.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/head_half.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"
#include "ops/token_ids.h"

namespace meshwright::ops::cpu {
namespace {

class HeadLoss final : public Kernel {
 public:
  // `half`: for x and w in bf16.
  HeadLoss(const HeadSizes& sizes, int64_t ignore, bool gradient, std::optional<HalfHead> half)
      : sizes_(sizes),
        ignore_(ignore),
        gradient_(gradient),
        half_(std::move(half)),
        losses_(static_cast<size_t>(sizes.block)) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    const int32_t* labels = inputs[2].as<int32_t>();
    MW_TRY(CheckTokenIds("head_loss", labels, sizes_.tokens, sizes_.vocabulary, ignore_));
    const float dloss = gradient_ ? *inputs[3].as<float>() : 0;
    if (inputs.size() > 4) CopyTensor(context, inputs[4], outputs[3]);
    double loss = 0;
    int64_t count = 0;
    for (int64_t first = 0; first < sizes_.tokens; first += sizes_.block) {
      const Block block{first, std::min(sizes_.block, sizes_.tokens - first),
                        outputs[gradient_ ? 4 : 2].as<float>()};
      Logits(context, block, inputs);
      Rows(context, block, labels + first, dloss);
      for (int64_t r = 0; r < block.rows; ++r) {
        if (labels[first + r] == ignore_) continue;
        loss += losses_[static_cast<size_t>(r)];
        ++count;
      }
      if (gradient_) Gradients(context, block, inputs, outputs);
    }
    *outputs[0].as<float>() = static_cast<float>(loss);
    *outputs[1].as<float>() = static_cast<float>(count);
    return {};
  }

 private:
  struct Block {
    int64_t first = 0;
    int64_t rows = 0;
    float* logits = nullptr;  // [rows, v]
  };

  const uint16_t* HalfRows(const Tensor& x, const Block& block) const {
    return x.as<uint16_t>() + block.first * sizes_.width;
  }

  // logits = x w^T
  void Logits(const RunContext& context, const Block& block, Inputs inputs) const {
    if (half_) {
      half_->Logits(context, block.rows, HalfRows(inputs[0], block), inputs[1].as<uint16_t>(),
                    block.logits);
      return;
    }
    const float* x = inputs[0].as<float>() + block.first * sizes_.width;
    const float* w = inputs[1].as<float>();
    ParallelItems(context, CountTiles(sizes_.vocabulary, kVocabularyTile), [&](int64_t tile) {
      const int64_t column = tile * kVocabularyTile;
      const int64_t columns = std::min(kVocabularyTile, sizes_.vocabulary - column);
      Gemm({block.rows, columns, sizes_.width}, {x, sizes_.width, 1},
           {w + column * sizes_.width, 1, sizes_.width},
           {block.logits + column, sizes_.vocabulary, 1}, false);
    });
  }

  // The loss of each row; logits become their gradient.
  void Rows(const RunContext& context, const Block& block, const int32_t* labels, float dloss) {
    const int64_t v = sizes_.vocabulary;
    ParallelItems(context, block.rows, [&](int64_t r) {
      float* logits = block.logits + r * v;
      const float largest = VecMax(logits, v);
      double lse = static_cast<double>(largest);
      if (!std::isinf(largest)) {
        lse += std::log(static_cast<double>(VecExpSum(logits, 1.0f, largest, v)));
      }
      const bool counts = labels[r] != ignore_;
      if (counts) losses_[static_cast<size_t>(r)] = lse - static_cast<double>(logits[labels[r]]);
      if (!gradient_) return;
      if (counts) {
        VecExpScaled(logits, static_cast<float>(lse), dloss, logits, v);
        logits[labels[r]] -= dloss;
      } else {
        std::fill_n(logits, v, 0.0f);
      }
      if (half_) VecNarrow(logits, reinterpret_cast<uint16_t*>(logits), v);
    });
  }

  // dx = dlogits w; dw = sum over blocks of dlogits^T x
  void Gradients(const RunContext& context, const Block& block, Inputs inputs,
                 Outputs outputs) const {
    const int64_t d = sizes_.width;
    const int64_t v = sizes_.vocabulary;
    float* dx = outputs[2].as<float>() + block.first * d;
    float* dw = outputs[3].as<float>();
    const bool accumulates = inputs.size() > 4;
    if (half_) {
      half_->InputGradient(context, block.rows, block.logits, inputs[1].as<uint16_t>(), dx);
      half_->WeightGradient(context, block.rows, block.logits, HalfRows(inputs[0], block), dw,
                            accumulates || block.first > 0);
      return;
    }
    const float* x = inputs[0].as<float>() + block.first * d;
    const float* w = inputs[1].as<float>();
    ParallelItems(context, CountTiles(d, kWidthTile), [&](int64_t tile) {
      const int64_t column = tile * kWidthTile;
      Gemm({block.rows, std::min(kWidthTile, d - column), v}, {block.logits, v, 1},
           {w + column, d, 1}, {dx + column, d, 1}, false);
    });
    ParallelItems(context, CountTiles(v, kVocabularyTile), [&](int64_t tile) {
      const int64_t row = tile * kVocabularyTile;
      Gemm({std::min(kVocabularyTile, v - row), d, block.rows}, {block.logits + row, 1, v},
           {x, d, 1}, {dw + row * d, d, 1}, accumulates || block.first > 0);
    });
  }

  const HeadSizes sizes_;
  const int64_t ignore_;
  const bool gradient_;
  const std::optional<HalfHead> half_;
  std::vector<double> losses_;  // of the rows of a block
};

}  // namespace

KernelResult MakeHeadLoss(const KernelSpec& spec) {
  const HeadSizes sizes{Product(spec.inputs[2].dims), spec.inputs[1].dims[1],
                        spec.inputs[1].dims[0], spec.attrs.Int("block_tokens")};
  const bool gradient = spec.op == ir::Op::kHeadLossGrad;
  std::optional<HalfHead> half;
  if (spec.inputs[0].dtype == ir::DType::kBF16) {
    half = HalfHead::Make(sizes, gradient);
    if (!half) return std::unique_ptr<Kernel>();
  }
  return std::unique_ptr<Kernel>(std::make_unique<HeadLoss>(
      sizes, spec.attrs.Int("ignore_index", kDefaultIgnoreIndex), gradient, std::move(half)));
}

}  // namespace meshwright::ops::cpu
