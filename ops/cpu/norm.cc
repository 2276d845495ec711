// layer_norm, rms_norm: rows over the team. Their gradients: dx by rows; dw and db as partial sums
// of fixed row blocks.
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

KernelResult MakeForward(const KernelSpec& spec, bool has_mean) {
  const int64_t width = spec.inputs[0].dims.back();
  const int64_t rows = spec.outputs[1].elements();
  const float eps = static_cast<float>(spec.attrs.Real("eps"));
  return MakeFunctionKernel([width, rows, eps, has_mean](const RunContext& context, Inputs inputs,
                                                         Outputs outputs) -> Status {
    const float* b = has_mean ? inputs[2].as<float>() : nullptr;
    float* rstd = outputs[has_mean ? 2 : 1].as<float>();
    ParallelRange(context, rows, RowGrain(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const NormRow row = VecNorm(inputs[0].as<float>() + r * width, inputs[1].as<float>(), b,
                                    eps, outputs[0].as<float>() + r * width, width);
        if (has_mean) outputs[1].as<float>()[r] = row.mean;
        rstd[r] = row.rstd;
      }
    });
    return {};
  });
}

class GradKernel final : public Kernel {
 public:
  GradKernel(const KernelSpec& spec, bool has_mean)
      : width_(spec.inputs[0].dims.back()), rows_(spec.inputs[2].elements()), has_mean_(has_mean) {
    block_ = std::max<int64_t>(16, (rows_ + 63) / 64);
    blocks_ = (rows_ + block_ - 1) / block_;
    partial_.resize(static_cast<size_t>(blocks_ * 2 * width_));
  }

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    ParallelItems(context, blocks_, [&](int64_t block) { RunBlock(block, inputs, outputs); });
    Combine(0, outputs[1].as<float>());
    if (has_mean_) Combine(width_, outputs[2].as<float>());
    return {};
  }

 private:
  void RunBlock(int64_t block, Inputs inputs, Outputs outputs) {
    float* dw = partial_.data() + block * 2 * width_;
    std::fill_n(dw, 2 * width_, 0.0f);
    const float* rstd = inputs[has_mean_ ? 3 : 2].as<float>();
    const float* dy = inputs[has_mean_ ? 4 : 3].as<float>();
    const int64_t end = std::min((block + 1) * block_, rows_);
    for (int64_t r = block * block_; r < end; ++r) {
      const NormGradRow row{inputs[0].as<float>() + r * width_,
                            inputs[1].as<float>(),
                            dy + r * width_,
                            has_mean_ ? inputs[2].as<float>()[r] : 0.0f,
                            rstd[r],
                            has_mean_};
      VecNormGrad(row, outputs[0].as<float>() + r * width_, dw, dw + width_, width_);
    }
  }

  void Combine(int64_t offset, float* out) const {
    for (int64_t j = 0; j < width_; ++j) {
      double total = 0;
      for (int64_t i = 0; i < blocks_; ++i) {
        total += static_cast<double>(partial_[static_cast<size_t>(i * 2 * width_ + offset + j)]);
      }
      out[j] = static_cast<float>(total);
    }
  }

  int64_t width_ = 0;
  int64_t rows_ = 0;
  bool has_mean_ = false;
  int64_t block_ = 0;
  int64_t blocks_ = 0;
  std::vector<float> partial_;  // [blocks, 2, width]: dw, db
};

}  // namespace

KernelResult MakeNorm(const KernelSpec& spec) {
  if (spec.op == ir::Op::kLayerNorm) return MakeForward(spec, true);
  if (spec.op == ir::Op::kRmsNorm) return MakeForward(spec, false);
  return std::unique_ptr<Kernel>(
      std::make_unique<GradKernel>(spec, spec.op == ir::Op::kLayerNormGrad));
}

}  // namespace meshwright::ops::cpu
