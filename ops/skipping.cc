#include "ops/skipping.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "ir/loss_scale.h"

namespace meshwright::ops {
namespace {

class SkippingKernel final : public Kernel {
 public:
  explicit SkippingKernel(std::unique_ptr<Kernel> update) : update_(std::move(update)) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_CHECK(inputs.size() == outputs.size() + 3) << "an update has p, g, states and two scalars";
    const Tensor& multiplier = inputs[inputs.size() - 2];
    const bool wide = multiplier.type->dtype == ir::DType::kF64;
    const double value =
        wide ? *multiplier.as<double>() : static_cast<double>(*multiplier.as<float>());
    if (value != 0) return update_->Run(context, inputs, outputs);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Tensor& old = inputs[o == 0 ? 0 : o + 1];
      if (old.data == outputs[o].data) continue;
      std::memcpy(outputs[o].data, old.data, static_cast<size_t>(old.type->bytes()));
    }
    return {};
  }

 private:
  std::unique_ptr<Kernel> update_;
};

}  // namespace

KernelResult Skipping(const KernelSpec& spec, KernelResult update) {
  if (!update.has_value() || spec.attrs.Int(ir::kSkipsAttr) == 0) return update;
  return std::unique_ptr<Kernel>(std::make_unique<SkippingKernel>(*std::move(update)));
}

}  // namespace meshwright::ops
