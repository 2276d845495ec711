// head_loss, one token at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/larger.h"
#include "ops/reference/reference.h"
#include "ops/token_ids.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
class HeadLoss final : public Kernel {
 public:
  explicit HeadLoss(const KernelSpec& spec)
      : gradient_(spec.op == ir::Op::kHeadLossGrad),
        ignore_(spec.attrs.Int("ignore_index", kDefaultIgnoreIndex)),
        tokens_(Product(spec.inputs[2].dims)),
        width_(spec.inputs[1].dims[1]),
        vocabulary_(spec.inputs[1].dims[0]),
        row_(static_cast<size_t>(vocabulary_)),
        dx_(static_cast<size_t>(width_)),
        dw_(gradient_ ? static_cast<size_t>(vocabulary_ * width_) : 0) {}

  Status Run(const RunContext&, Inputs inputs, Outputs outputs) override {
    const int32_t* labels = inputs[2].as<int32_t>();
    MW_TRY(CheckTokenIds("head_loss", labels, tokens_, vocabulary_, ignore_));
    std::fill(dw_.begin(), dw_.end(), 0.0);
    double loss = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < tokens_; ++t) {
      const T* x = inputs[0].as<T>() + t * width_;
      const double lse = Logits(x, inputs[1].as<T>());
      if (labels[t] != ignore_) {
        loss += lse - row_[static_cast<size_t>(labels[t])];
        ++count;
      }
      if (!gradient_) continue;
      const double dloss = static_cast<double>(*inputs[3].as<T>());
      AddGradients(x, inputs[1].as<T>(), lse, labels[t], labels[t] == ignore_ ? 0 : dloss);
      for (int64_t j = 0; j < width_; ++j) {
        outputs[2].as<T>()[t * width_ + j] = static_cast<T>(dx_[static_cast<size_t>(j)]);
      }
    }
    *outputs[0].as<T>() = static_cast<T>(loss);
    *outputs[1].as<T>() = static_cast<T>(count);
    for (size_t i = 0; i < dw_.size(); ++i) {
      const double start = inputs.size() > 4 ? static_cast<double>(inputs[4].as<T>()[i]) : 0;
      outputs[3].as<T>()[i] = static_cast<T>(start + dw_[i]);
    }
    // The block is memory that a kernel may use; what is in it means nothing.
    const Tensor& block = outputs[gradient_ ? 4 : 2];
    std::fill_n(block.as<T>(), block.elements(), T{0});
    return {};
  }

 private:
  // Fills row_; returns its log-sum-exp.
  double Logits(const T* x, const T* w) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t v = 0; v < vocabulary_; ++v) {
      double total = 0;
      for (int64_t j = 0; j < width_; ++j) {
        total += static_cast<double>(x[j]) * static_cast<double>(w[v * width_ + j]);
      }
      row_[static_cast<size_t>(v)] = total;
      largest = Larger(largest, total);
    }
    double sum = 0;
    for (const double logit : row_) sum += std::exp(logit - largest);
    return largest + std::log(sum);
  }

  void AddGradients(const T* x, const T* w, double lse, int32_t label, double dloss) {
    std::fill(dx_.begin(), dx_.end(), 0.0);
    if (dloss == 0) return;
    for (int64_t v = 0; v < vocabulary_; ++v) {
      double grad = dloss * std::exp(row_[static_cast<size_t>(v)] - lse);
      if (v == label) grad -= dloss;
      for (int64_t j = 0; j < width_; ++j) {
        dx_[static_cast<size_t>(j)] += grad * static_cast<double>(w[v * width_ + j]);
        dw_[static_cast<size_t>(v * width_ + j)] += grad * static_cast<double>(x[j]);
      }
    }
  }

  const bool gradient_;
  const int64_t ignore_;
  const int64_t tokens_;
  const int64_t width_;
  const int64_t vocabulary_;
  std::vector<double> row_;  // logits of a token
  std::vector<double> dx_;
  std::vector<double> dw_;
};

}  // namespace

KernelResult MakeHeadLoss(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    return std::unique_ptr<Kernel>(std::make_unique<HeadLoss<decltype(zero)>>(spec));
  });
}

}  // namespace meshwright::ops::reference
