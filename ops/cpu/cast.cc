// cast between f32 and bf16.
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_half.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {

KernelResult MakeCast(const KernelSpec& spec) {
  if (spec.inputs[0].dtype == spec.outputs[0].dtype) return std::unique_ptr<Kernel>();
  const bool narrow = spec.outputs[0].dtype == ir::DType::kBF16;
  return MakeFunctionKernel([narrow](const RunContext& context, Inputs inputs,
                                     Outputs outputs) -> Status {
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      if (narrow) {
        VecNarrow(inputs[0].as<float>() + begin, outputs[0].as<uint16_t>() + begin, end - begin);
      } else {
        VecWiden(inputs[0].as<uint16_t>() + begin, outputs[0].as<float>() + begin, end - begin);
      }
    });
    return {};
  });
}

}  // namespace meshwright::ops::cpu
