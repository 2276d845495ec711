// constant and random_normal: what fills the weights before the first step.
#include <algorithm>

#include "base/half.h"
#include "base/philox.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/global_runs.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

template <typename T>
KernelResult MakeFill(T value) {
  return MakeFunctionKernel([value](const RunContext& context, Inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    ParallelRange(context, outputs[0].elements(), kElementGrain,
                  [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, value); });
    return {};
  });
}

KernelResult MakeConstant(const KernelSpec& spec) {
  const float value = static_cast<float>(spec.attrs.Real("value"));
  return spec.outputs[0].dtype == ir::DType::kBF16 ? MakeFill(FloatToBf16(value)) : MakeFill(value);
}

// Padding beyond the global edge is 0.
KernelResult MakeRandomNormal(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const uint64_t stream = StreamOf(spec.attrs.Str("name"));
  const float mean = static_cast<float>(spec.attrs.Real("mean"));
  const float deviation = static_cast<float>(spec.attrs.Real("std", 1));
  return MakeFunctionKernel([runs = GlobalRuns(block), stream, mean, deviation](
                                const RunContext& context, Inputs, Outputs outputs) -> Status {
    const uint64_t key = PhiloxKey(context.seed, stream);
    for (int64_t r = 0; r < runs.runs(); ++r) {
      const GlobalRuns::Run run = runs.At(r, context.microbatch);
      float* row = outputs[0].as<float>() + r * runs.run_length();
      ParallelRange(context, run.valid, kElementGrain, [&](int64_t begin, int64_t end) {
        VecNormal(key, kNoStep, static_cast<uint64_t>(run.global_start + begin), mean, deviation,
                  row + begin, end - begin);
      });
      std::fill(row + run.valid, row + runs.run_length(), 0.0f);
    }
    return {};
  });
}

}  // namespace

KernelResult MakeSource(const KernelSpec& spec) {
  return spec.op == ir::Op::kConstant ? MakeConstant(spec) : MakeRandomNormal(spec);
}

}  // namespace meshwright::ops::cpu
