// cast between f32 and bf16.
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_half.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {

KernelResult MakeCast(const KernelSpec& spec) {
  const ir::DType from = spec.inputs[0].dtype;
  const ir::DType to = spec.outputs[0].dtype;
  const bool narrow = from == ir::DType::kF32 && to == ir::DType::kBF16;
  const bool widen = from == ir::DType::kBF16 && to == ir::DType::kF32;
  if (!narrow && !widen) return std::unique_ptr<Kernel>();
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
