// f32 elementwise kernels: flat ranges over the team.
#include <cstring>

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

using UnaryLoop = void (*)(const float*, float*, int64_t);
using BinaryLoop = void (*)(const float*, const float*, float*, int64_t);

KernelResult MakeUnary(UnaryLoop loop) {
  return MakeFunctionKernel([loop](const RunContext& context, Inputs inputs,
                                   Outputs outputs) -> Status {
    const float* x = inputs[0].as<float>();
    float* out = outputs[0].as<float>();
    ParallelRange(context, outputs[0].elements(), kElementGrain,
                  [&](int64_t begin, int64_t end) { loop(x + begin, out + begin, end - begin); });
    return {};
  });
}

// y repeats along x when its shape is a proper suffix of x's.
KernelResult MakeBinary(BinaryLoop loop) {
  return MakeFunctionKernel(
      [loop](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const float* x = inputs[0].as<float>();
        const float* y = inputs[1].as<float>();
        float* out = outputs[0].as<float>();
        const int64_t count = inputs[0].elements();
        const int64_t period = inputs[1].elements();
        if (period == count) {
          ParallelRange(context, count, kElementGrain, [&](int64_t begin, int64_t end) {
            loop(x + begin, y + begin, out + begin, end - begin);
          });
          return {};
        }
        const int64_t rows = period == 0 ? 0 : count / period;
        ParallelRange(context, rows, RowGrain(period), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            loop(x + r * period, y, out + r * period, period);
          }
        });
        return {};
      });
}

// The factor is a constant, or the second operand.
KernelResult MakeScale(const KernelSpec& spec) {
  const bool constant = spec.op == ir::Op::kScale;
  const float value = static_cast<float>(spec.attrs.Real("factor", 1));
  return MakeFunctionKernel([constant, value](const RunContext& context, Inputs inputs,
                                              Outputs outputs) -> Status {
    const float* x = inputs[0].as<float>();
    const float factor = constant ? value : *inputs[1].as<float>();
    float* out = outputs[0].as<float>();
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      VecScale(x + begin, factor, out + begin, end - begin);
    });
    return {};
  });
}

KernelResult MakeSum() {
  return MakeFunctionKernel([](const RunContext& context, Inputs inputs,
                               Outputs outputs) -> Status {
    float* out = outputs[0].as<float>();
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      if (inputs.size() == 1) {
        std::memmove(out + begin, inputs[0].as<float>() + begin,
                     static_cast<size_t>(end - begin) * sizeof(float));
        return;
      }
      VecAdd(inputs[0].as<float>() + begin, inputs[1].as<float>() + begin, out + begin,
             end - begin);
      for (size_t k = 2; k < inputs.size(); ++k) {
        VecAdd(out + begin, inputs[k].as<float>() + begin, out + begin, end - begin);
      }
    });
    return {};
  });
}

}  // namespace

KernelResult MakeElementwise(const KernelSpec& spec) {
  switch (spec.op) {
    case ir::Op::kAdd:
      return MakeBinary(VecAdd);
    case ir::Op::kMul:
      return MakeBinary(VecMul);
    case ir::Op::kSub:
      return MakeBinary(VecSub);
    case ir::Op::kGelu:
      return MakeUnary(VecGelu);
    case ir::Op::kSilu:
      return MakeUnary(VecSilu);
    case ir::Op::kGeluGrad:
      return MakeBinary(VecGeluGrad);
    case ir::Op::kSiluGrad:
      return MakeBinary(VecSiluGrad);
    case ir::Op::kSum:
      return MakeSum();
    default:
      return MakeScale(spec);
  }
}

}  // namespace meshwright::ops::cpu
