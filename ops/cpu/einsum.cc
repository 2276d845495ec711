// einsum on sgemm, or on bf16 products where the processor has them.
//
// The labels are grouped into matrix products (ops/einsum_plan.h), which are cut into tiles
// (ops/cpu/gemm_plan.h). Layouts that no BLAS call can read are first copied to [batch, m, k] and
// [batch, k, n].
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ops/cpu/copy_tensor.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm_plan.h"
#include "ops/einsum_plan.h"
#include "ops/parallel.h"
#include "ops/strided_copy.h"

namespace meshwright::ops::cpu {
namespace {

// A tensor copied to the order of labels that a BLAS can read.
struct Packing {
  StridedCopy copy;
  std::vector<float> data;
};

ir::Dims SizesOf(const std::vector<EinsumLoop>& labels) {
  ir::Dims sizes;
  for (const EinsumLoop& label : labels) sizes.push_back(label.size);
  return sizes;
}

std::vector<EinsumLoop> Join(const std::vector<EinsumLoop>& x, const std::vector<EinsumLoop>& y,
                             const std::vector<EinsumLoop>& z) {
  std::vector<EinsumLoop> all = x;
  all.insert(all.end(), y.begin(), y.end());
  all.insert(all.end(), z.begin(), z.end());
  return all;
}

// `into`: the copy runs from the tensor (strides `stride`) into packed memory; otherwise back from
// it.
StridedCopy MakeCopy(const std::vector<EinsumLoop>& labels, int64_t EinsumLoop::*stride,
                     bool into) {
  const ir::Dims sizes = SizesOf(labels);
  ir::Dims strides;
  for (const EinsumLoop& label : labels) strides.push_back(label.*stride);
  const ir::Dims packed = RowMajorStrides(sizes);
  const int64_t bytes = static_cast<int64_t>(sizeof(float));
  return into ? StridedCopy(sizes, strides, packed, bytes)
              : StridedCopy(sizes, packed, strides, bytes);
}

Packing MakePacking(const std::vector<EinsumLoop>& labels, int64_t EinsumLoop::*stride, bool into) {
  return {MakeCopy(labels, stride, into),
          std::vector<float>(static_cast<size_t>(Product(SizesOf(labels))))};
}

int64_t Volume(const std::vector<EinsumLoop>& loops) { return Product(SizesOf(loops)); }

// The loops of the packed operands: one batch, m, n and k label each.
EinsumLoops PackedLoops(const EinsumLoops& loops) {
  const int64_t m = Volume(loops.m);
  const int64_t n = Volume(loops.n);
  const int64_t k = Volume(loops.k);
  return {{{'b', Volume(loops.batch), m * k, k * n, m * n}},
          {{'m', m, k, 0, n}},
          {{'n', n, 0, 1, 1}},
          {{'k', k, 1, n, 0}}};
}

KernelResult MakePacked(const EinsumLoops& loops, bool alone) {
  const std::optional<GemmLoops> gemm = ChooseGemm(PackedLoops(loops));
  return MakeFunctionKernel(
      [plan = GemmPlan(*gemm, alone),
       a = MakePacking(Join(loops.batch, loops.m, loops.k), &EinsumLoop::a, true),
       b = MakePacking(Join(loops.batch, loops.k, loops.n), &EinsumLoop::b, true),
       c = MakePacking(Join(loops.batch, loops.m, loops.n), &EinsumLoop::c, false),
       sum = MakeCopy(Join(loops.batch, loops.m, loops.n), &EinsumLoop::c, true)](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        const bool accumulate = inputs.size() > 2;
        a.copy.Run(context, inputs[0].data, a.data.data());
        b.copy.Run(context, inputs[1].data, b.data.data());
        if (accumulate) sum.Run(context, inputs[2].data, c.data.data());
        plan.Run(context, a.data.data(), b.data.data(), c.data.data(), accumulate);
        c.copy.Run(context, c.data.data(), outputs[0].data);
        return {};
      });
}

}  // namespace

KernelResult MakeEinsum(const KernelSpec& spec) {
  const std::string equation = spec.attrs.Str("equation");
  MW_ASSIGN_OR_RETURN(
      std::optional<GemmPlan> gemm,
      PlanGemm(spec.attrs, spec.inputs[0].dims, spec.inputs[1].dims, spec.outputs[0].dims));
  if (spec.inputs[0].dtype == ir::DType::kBF16) {
    const bool accumulates = spec.inputs.size() > 2;
    if (!gemm || !gemm->PrepareHalf(spec.outputs[0].dtype, accumulates)) {
      return std::unique_ptr<Kernel>();
    }
    return MakeFunctionKernel([plan = *std::move(gemm)](const RunContext& context, Inputs inputs,
                                                        Outputs outputs) -> Status {
      if (inputs.size() > 2) CopyTensor(context, inputs[2], outputs[0]);
      plan.RunHalf(context, inputs[0].as<uint16_t>(), inputs[1].as<uint16_t>(), outputs[0].data);
      return {};
    });
  }
  if (spec.outputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  if (gemm) {
    return MakeFunctionKernel([plan = *std::move(gemm)](const RunContext& context, Inputs inputs,
                                                        Outputs outputs) -> Status {
      if (inputs.size() > 2) CopyTensor(context, inputs[2], outputs[0]);
      plan.Run(context, inputs[0].as<float>(), inputs[1].as<float>(), outputs[0].as<float>(),
               inputs.size() > 2);
      return {};
    });
  }
  MW_ASSIGN_OR_RETURN(
      const EinsumLoops loops,
      ClassifyEinsum(equation, spec.inputs[0].dims, spec.inputs[1].dims, spec.outputs[0].dims));
  const int64_t product = Volume(loops.m) * Volume(loops.n) * Volume(loops.k);
  const bool alone = IsAlone(spec.attrs);
  if (alone || product >= kSmallestGemm) return MakePacked(loops, alone);
  return std::unique_ptr<Kernel>();  // the reference loops
}

}  // namespace meshwright::ops::cpu
