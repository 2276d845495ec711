// adamw and sgd: one pass over parameters, gradients and state.
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_rows.h"
#include "ops/optimizer_math.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

KernelResult MakeAdamW(const KernelSpec& spec) {
  return MakeFunctionKernel([config = AdamWConfig::From(spec.attrs)](const RunContext& context,
                                                                     Inputs inputs,
                                                                     Outputs outputs) -> Status {
    const AdamWStep step = config.At(context.step, static_cast<double>(*inputs[5].as<float>()),
                                     static_cast<double>(*inputs[4].as<float>()));
    ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      VecAdamW({inputs[0].as<float>() + begin, inputs[1].as<float>() + begin,
                inputs[2].as<float>() + begin, inputs[3].as<float>() + begin,
                outputs[0].as<float>() + begin, outputs[1].as<float>() + begin,
                outputs[2].as<float>() + begin},
               step, end - begin);
    });
    return {};
  });
}

KernelResult MakeSgd(const KernelSpec& spec) {
  const float momentum = static_cast<float>(spec.attrs.Real("momentum"));
  const float decay = static_cast<float>(spec.attrs.Real("weight_decay"));
  return MakeFunctionKernel([momentum, decay](const RunContext& context, Inputs inputs,
                                              Outputs outputs) -> Status {
    const SgdStep step{*inputs[3].as<float>(), *inputs[4].as<float>(), momentum, decay};
    ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      VecSgd({inputs[0].as<float>() + begin, inputs[1].as<float>() + begin,
              inputs[2].as<float>() + begin, outputs[0].as<float>() + begin,
              outputs[1].as<float>() + begin},
             step, end - begin);
    });
    return {};
  });
}

}  // namespace

KernelResult MakeOptimizer(const KernelSpec& spec) {
  return spec.op == ir::Op::kAdamW ? MakeAdamW(spec) : MakeSgd(spec);
}

}  // namespace meshwright::ops::cpu
