// layer_norm, rms_norm: rows over the team. Their gradients: dx by rows; dw and db as partial sums
// of fixed row blocks.
#include <utility>

#include "ops/cpu/cpu.h"
#include "ops/cpu/norm_grad.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

KernelResult MakeForward(const KernelSpec& spec, bool has_mean) {
  const int64_t width = spec.inputs[0].dims.back();
  const int64_t rows = spec.outputs[1].elements();
  const float eps = static_cast<float>(spec.attrs.Real("eps"));
  if (spec.inputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  const bool half = spec.outputs[0].dtype == ir::DType::kBF16;
  return MakeFunctionKernel([width, rows, eps, has_mean, half](const RunContext& context,
                                                               Inputs inputs,
                                                               Outputs outputs) -> Status {
    const float* b = has_mean ? inputs[2].as<float>() : nullptr;
    float* rstd = outputs[has_mean ? 2 : 1].as<float>();
    ParallelRange(context, rows, RowGrain(width), [&](int64_t begin, int64_t end) {
      float* wide = half ? ThreadScratch(width) : nullptr;
      for (int64_t r = begin; r < end; ++r) {
        float* y = half ? wide : outputs[0].as<float>() + r * width;
        const NormRow row =
            VecNorm(inputs[0].as<float>() + r * width, inputs[1].as<float>(), b, eps, y, width);
        if (half) VecNarrow(y, outputs[0].as<uint16_t>() + r * width, width);
        if (has_mean) outputs[1].as<float>()[r] = row.mean;
        rstd[r] = row.rstd;
      }
    });
    return {};
  });
}

KernelResult MakeGrad(const KernelSpec& spec, bool has_mean) {
  const int64_t width = spec.inputs[0].dims.back();
  NormGrad grad(spec.inputs[2].elements(), width, has_mean);
  return MakeFunctionKernel(
      [grad = std::move(grad), width, has_mean](const RunContext& context, Inputs inputs,
                                                Outputs outputs) mutable -> Status {
        const NormGrad::Operands operands = NormGrad::OperandsOf(inputs, has_mean);
        float* dx = outputs[0].as<float>();
        const auto place = [&](int64_t row) { return dx + row * width; };
        grad.Run(context, operands, place, [](int64_t, const float*) {});
        grad.AddUp(outputs[1].as<float>(), has_mean ? outputs[2].as<float>() : nullptr);
        return {};
      });
}

}  // namespace

KernelResult MakeNorm(const KernelSpec& spec) {
  if (spec.op == ir::Op::kLayerNorm) return MakeForward(spec, true);
  if (spec.op == ir::Op::kRmsNorm) return MakeForward(spec, false);
  return MakeGrad(spec, spec.op == ir::Op::kLayerNormGrad);
}

}  // namespace meshwright::ops::cpu
