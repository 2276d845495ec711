#include "ops/cpu/norm_grad.h"

#include <algorithm>

#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {

NormGrad::Operands NormGrad::OperandsOf(Inputs inputs, bool has_mean) {
  const size_t rstd = has_mean ? 3 : 2;
  return {inputs[0].as<float>(), inputs[1].as<float>(), has_mean ? inputs[2].as<float>() : nullptr,
          inputs[rstd].as<float>(), inputs[rstd + 1].as<float>()};
}

NormGrad::NormGrad(int64_t rows, int64_t width, bool has_mean, int64_t block_rows)
    : rows_(rows), width_(width), has_mean_(has_mean), block_(block_rows) {
  if (block_ == 0) block_ = std::max<int64_t>(16, (rows_ + 63) / 64);
  blocks_ = (rows_ + block_ - 1) / block_;
  partial_.resize(static_cast<size_t>(blocks_ * 2 * width_));
}

void NormGrad::Run(const RunContext& context, const Operands& operands,
                   FunctionRef<float*(int64_t row)> place,
                   FunctionRef<void(int64_t row, const float* dx)> done) {
  ParallelItems(context, blocks_, [&](int64_t block) {
    float* dw = partial_.data() + block * 2 * width_;
    std::fill_n(dw, 2 * width_, 0.0f);
    const int64_t end = std::min((block + 1) * block_, rows_);
    for (int64_t r = block * block_; r < end; ++r) {
      const NormGradRow row{operands.x + r * width_,  operands.w,
                            operands.dy + r * width_, has_mean_ ? operands.mean[r] : 0.0f,
                            operands.rstd[r],         has_mean_};
      float* dx = place(r);
      VecNormGrad(row, dx, dw, dw + width_, width_);
      done(r, dx);
    }
  });
}

void NormGrad::AddUp(float* dw, float* db) const {
  Combine(0, dw);
  if (db != nullptr) Combine(width_, db);
}

void NormGrad::Combine(int64_t offset, float* out) const {
  for (int64_t j = 0; j < width_; ++j) {
    double total = 0;
    for (int64_t i = 0; i < blocks_; ++i) {
      total += static_cast<double>(partial_[static_cast<size_t>(i * 2 * width_ + offset + j)]);
    }
    out[j] = static_cast<float>(total);
  }
}

}  // namespace meshwright::ops::cpu
