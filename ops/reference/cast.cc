// cast between the float types.
#include "base/half.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

double Load(const Tensor& x, int64_t i) {
  switch (x.type->dtype) {
    case ir::DType::kF64:
      return x.as<double>()[i];
    case ir::DType::kBF16:
      return static_cast<double>(Bf16ToFloat(x.as<uint16_t>()[i]));
    case ir::DType::kF16:
      return static_cast<double>(F16ToFloat(x.as<uint16_t>()[i]));
    default:
      return static_cast<double>(x.as<float>()[i]);
  }
}

void Store(double value, const Tensor& out, int64_t i) {
  switch (out.type->dtype) {
    case ir::DType::kF64:
      out.as<double>()[i] = value;
      return;
    case ir::DType::kBF16:
      out.as<uint16_t>()[i] = FloatToBf16(static_cast<float>(value));
      return;
    case ir::DType::kF16:
      out.as<uint16_t>()[i] = FloatToF16(static_cast<float>(value));
      return;
    default:
      out.as<float>()[i] = static_cast<float>(value);
  }
}

}  // namespace

KernelResult MakeCast(const KernelSpec&) {
  return MakeFunctionKernel([](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const int64_t count = outputs[0].elements();
    for (int64_t i = 0; i < count; ++i) Store(Load(inputs[0], i), outputs[0], i);
    return {};
  });
}

}  // namespace meshwright::ops::reference
