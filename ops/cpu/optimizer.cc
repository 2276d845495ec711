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

// A row of p, g and m in one loop that compilers turn into vectors.
void LionRow(const SgdRow& row, const SgdStep& step, float sign_beta, int64_t count) {
  const float keep = 1.0f - step.lr * step.decay;
  for (int64_t i = 0; i < count; ++i) {
    const float g = row.g[i] * step.multiplier;
    const float m = row.m[i];
    const float mean = sign_beta * m + (1.0f - sign_beta) * g;
    const float sign = mean > 0 ? 1.0f : mean < 0 ? -1.0f : mean;
    row.p_out[i] = keep * row.p[i] - step.lr * sign;
    row.m_out[i] = step.momentum * m + (1.0f - step.momentum) * g;
  }
}

KernelResult MakeLion(const KernelSpec& spec) {
  return MakeFunctionKernel([config = SgdConfig::From(spec.attrs)](const RunContext& context,
                                                                   Inputs inputs,
                                                                   Outputs outputs) -> Status {
    const SgdStep step{*inputs[3].as<float>(), *inputs[4].as<float>(),
                       static_cast<float>(config.momentum),
                       static_cast<float>(config.weight_decay)};
    const auto beta = static_cast<float>(config.sign_beta);
    ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      LionRow({inputs[0].as<float>() + begin, inputs[1].as<float>() + begin,
               inputs[2].as<float>() + begin, outputs[0].as<float>() + begin,
               outputs[1].as<float>() + begin},
              step, beta, end - begin);
    });
    return {};
  });
}

}  // namespace

KernelResult MakeOptimizer(const KernelSpec& spec) {
  if (spec.op == ir::Op::kAdamW) return MakeAdamW(spec);
  return SgdConfig::From(spec.attrs).by_sign() ? MakeLion(spec) : MakeSgd(spec);
}

}  // namespace meshwright::ops::cpu
