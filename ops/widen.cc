#include "ops/widen.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/half.h"

namespace meshwright::ops {
namespace {

bool IsHalf(ir::DType dtype) { return dtype == ir::DType::kBF16 || dtype == ir::DType::kF16; }

void Widen(const Tensor& from, float* to) {
  const bool bf16 = from.type->dtype == ir::DType::kBF16;
  const uint16_t* x = from.as<uint16_t>();
  const int64_t count = from.elements();
  for (int64_t i = 0; i < count; ++i) to[i] = bf16 ? Bf16ToFloat(x[i]) : F16ToFloat(x[i]);
}

void Narrow(const float* from, const Tensor& to) {
  const bool bf16 = to.type->dtype == ir::DType::kBF16;
  uint16_t* out = to.as<uint16_t>();
  const int64_t count = to.elements();
  for (int64_t i = 0; i < count; ++i) out[i] = bf16 ? FloatToBf16(from[i]) : FloatToF16(from[i]);
}

class Widened final : public Kernel {
 public:
  Widened(const KernelSpec& spec, std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {
    for (const ir::TensorType& type : spec.inputs) Add(type, inputs_);
    for (const ir::TensorType& type : spec.outputs) Add(type, outputs_);
  }

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_CHECK(inputs.size() == inputs_.types.size() && outputs.size() == outputs_.types.size())
        << inputs.size() << " operands and " << outputs.size() << " results";
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs_.wide[i].empty()) Widen(inputs[i], inputs_.wide[i].data());
      Place(inputs_, i, inputs[i]);
    }
    for (size_t i = 0; i < outputs.size(); ++i) Place(outputs_, i, outputs[i]);
    MW_TRY(kernel_->Run(context, inputs_.tensors, outputs_.tensors));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs_.wide[i].empty()) Narrow(outputs_.wide[i].data(), outputs[i]);
    }
    return {};
  }

 private:
  struct Side {
    std::vector<ir::TensorType> types;
    std::vector<std::vector<float>> wide;  // empty where the tensor is read or written in place
    std::vector<Tensor> tensors;
  };

  static void Add(ir::TensorType type, Side& side) {
    const bool half = IsHalf(type.dtype);
    side.wide.emplace_back(half ? static_cast<size_t>(type.elements()) : 0);
    if (half) type.dtype = ir::DType::kF32;
    side.types.push_back(std::move(type));
    side.tensors.emplace_back();
  }

  static void Place(Side& side, size_t i, const Tensor& tensor) {
    void* data = side.wide[i].empty() ? tensor.data : side.wide[i].data();
    side.tensors[i] = {data, &side.types[i]};
  }

  std::unique_ptr<Kernel> kernel_;
  Side inputs_;
  Side outputs_;
};

}  // namespace

bool HasHalves(const KernelSpec& spec) {
  const auto half = [](const ir::TensorType& type) { return IsHalf(type.dtype); };
  return std::any_of(spec.inputs.begin(), spec.inputs.end(), half) ||
         std::any_of(spec.outputs.begin(), spec.outputs.end(), half);
}

KernelResult MakeWidened(Backend backend, const KernelSpec& spec) {
  MW_CHECK(HasHalves(spec)) << spec.ToString() << " has nothing to widen";
  KernelSpec wide = spec;
  for (std::vector<ir::TensorType>* types : {&wide.inputs, &wide.outputs}) {
    for (ir::TensorType& type : *types) {
      if (IsHalf(type.dtype)) type.dtype = ir::DType::kF32;
    }
  }
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, MakeKernel(backend, wide));
  return std::unique_ptr<Kernel>(std::make_unique<Widened>(spec, std::move(kernel)));
}

}  // namespace meshwright::ops
