// adamw and sgd: one pass over parameters, gradients and state.
#include <algorithm>

#include "ops/cpu/cpu.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_rows.h"
#include "ops/optimizer_math.h"
#include "ops/parallel.h"
#include "ops/skipping.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kWidenedElements = 4096;  // of a gradient in 16 bits, at a time

// body(first, count, gradients) for pieces of the tensors; the gradients, operand 1, in f32.
template <typename Body>
void ForPieces(const RunContext& context, Inputs inputs, const Body& body) {
  const Tensor& g = inputs[1];
  const bool half = g.type->dtype == ir::DType::kBF16;
  ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
    if (!half) {
      body(begin, end - begin, g.as<float>() + begin);
      return;
    }
    float* const wide = ThreadScratch(kWidenedElements);
    for (int64_t first = begin; first < end; first += kWidenedElements) {
      const int64_t count = std::min(kWidenedElements, end - first);
      VecWiden(g.as<uint16_t>() + first, wide, count);
      body(first, count, wide);
    }
  });
}

KernelResult MakeAdamW(const KernelSpec& spec) {
  return MakeFunctionKernel([config = AdamWConfig::From(spec.attrs)](const RunContext& context,
                                                                     Inputs inputs,
                                                                     Outputs outputs) -> Status {
    const AdamWStep step = config.At(context.step, static_cast<double>(*inputs[5].as<float>()),
                                     static_cast<double>(*inputs[4].as<float>()));
    ForPieces(context, inputs, [&](int64_t first, int64_t count, const float* g) {
      VecAdamW({inputs[0].as<float>() + first, g, inputs[2].as<float>() + first,
                inputs[3].as<float>() + first, outputs[0].as<float>() + first,
                outputs[1].as<float>() + first, outputs[2].as<float>() + first},
               step, count);
    });
    return {};
  });
}

KernelResult MakeSgd(const KernelSpec& spec) {
  const float momentum = static_cast<float>(spec.attrs.Real("momentum"));
  const float decay = static_cast<float>(spec.attrs.Real("weight_decay"));
  return MakeFunctionKernel(
      [momentum, decay](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const SgdStep step{*inputs[3].as<float>(), *inputs[4].as<float>(), momentum, decay};
        ForPieces(context, inputs, [&](int64_t first, int64_t count, const float* g) {
          VecSgd({inputs[0].as<float>() + first, g, inputs[2].as<float>() + first,
                  outputs[0].as<float>() + first, outputs[1].as<float>() + first},
                 step, count);
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
    ForPieces(context, inputs, [&](int64_t first, int64_t count, const float* g) {
      LionRow({inputs[0].as<float>() + first, g, inputs[2].as<float>() + first,
               outputs[0].as<float>() + first, outputs[1].as<float>() + first},
              step, beta, count);
    });
    return {};
  });
}

KernelResult MakeUpdate(const KernelSpec& spec) {
  // Weights of 16 bits are widened with all else (ops/widen.h).
  if (spec.inputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  if (spec.op == ir::Op::kAdamW) return MakeAdamW(spec);
  return SgdConfig::From(spec.attrs).by_sign() ? MakeLion(spec) : MakeSgd(spec);
}

}  // namespace

KernelResult MakeOptimizer(const KernelSpec& spec) { return Skipping(spec, MakeUpdate(spec)); }

}  // namespace meshwright::ops::cpu
