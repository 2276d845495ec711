// adamw and sgd: one pass over parameters, gradients and state.
#include <algorithm>
#include <cstdint>

#include "base/half.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_rows.h"
#include "ops/optimizer_math.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

// Moments in bf16 are widened, renewed and rounded so many at a time.
constexpr int64_t kMomentBlock = 512;

bool HasHalfMoments(const KernelSpec& spec) { return spec.outputs[1].dtype == ir::DType::kBF16; }

// Elements of a moment as f32: where they lie, or a copy of those in bf16.
class MomentBlock {
 public:
  MomentBlock(const Inputs& inputs, const Outputs& outputs, size_t input, size_t output, bool half)
      : half_(half) {
    if (half_) {
      from16_ = inputs[input].as<uint16_t>();
      to16_ = outputs[output].as<uint16_t>();
    } else {
      from_ = inputs[input].as<float>();
      to_ = outputs[output].as<float>();
    }
  }
  const float* Read(int64_t begin, int64_t count) {
    if (!half_) return from_ + begin;
    for (int64_t i = 0; i < count; ++i) block_[i] = Bf16ToFloat(from16_[begin + i]);
    return block_;
  }
  float* Target(int64_t begin) { return half_ ? block_ : to_ + begin; }
  void Write(int64_t begin, int64_t count) {
    if (!half_) return;
    for (int64_t i = 0; i < count; ++i) to16_[begin + i] = FloatToBf16(block_[i]);
  }

 private:
  const bool half_;
  const uint16_t* from16_ = nullptr;
  uint16_t* to16_ = nullptr;
  const float* from_ = nullptr;
  float* to_ = nullptr;
  float block_[kMomentBlock] = {};
};

// Calls renew(begin, count) for blocks of [begin, end): all at once where nothing is widened.
template <typename Renew>
void ForBlocks(int64_t begin, int64_t end, bool half, const Renew& renew) {
  const int64_t most = half ? kMomentBlock : std::max<int64_t>(1, end - begin);
  for (int64_t at = begin; at < end; at += most) renew(at, std::min(most, end - at));
}

KernelResult MakeAdamW(const KernelSpec& spec) {
  return MakeFunctionKernel([config = AdamWConfig::From(spec.attrs), half = HasHalfMoments(spec)](
                                const RunContext& context, Inputs inputs,
                                Outputs outputs) -> Status {
    const AdamWStep step = config.At(context.step, static_cast<double>(*inputs[5].as<float>()),
                                     static_cast<double>(*inputs[4].as<float>()));
    ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      MomentBlock m(inputs, outputs, 2, 1, half);
      MomentBlock v(inputs, outputs, 3, 2, half);
      ForBlocks(begin, end, half, [&](int64_t at, int64_t count) {
        VecAdamW({inputs[0].as<float>() + at, inputs[1].as<float>() + at, m.Read(at, count),
                  v.Read(at, count), outputs[0].as<float>() + at, m.Target(at), v.Target(at)},
                 step, count);
        m.Write(at, count);
        v.Write(at, count);
      });
    });
    return {};
  });
}

KernelResult MakeSgd(const KernelSpec& spec) {
  const float momentum = static_cast<float>(spec.attrs.Real("momentum"));
  const float decay = static_cast<float>(spec.attrs.Real("weight_decay"));
  return MakeFunctionKernel([momentum, decay, half = HasHalfMoments(spec)](
                                const RunContext& context, Inputs inputs,
                                Outputs outputs) -> Status {
    const SgdStep step{*inputs[3].as<float>(), *inputs[4].as<float>(), momentum, decay};
    ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      MomentBlock m(inputs, outputs, 2, 1, half);
      ForBlocks(begin, end, half, [&](int64_t at, int64_t count) {
        VecSgd({inputs[0].as<float>() + at, inputs[1].as<float>() + at, m.Read(at, count),
                outputs[0].as<float>() + at, m.Target(at)},
               step, count);
        m.Write(at, count);
      });
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
  return MakeFunctionKernel([config = SgdConfig::From(spec.attrs), half = HasHalfMoments(spec)](
                                const RunContext& context, Inputs inputs,
                                Outputs outputs) -> Status {
    const SgdStep step{*inputs[3].as<float>(), *inputs[4].as<float>(),
                       static_cast<float>(config.momentum),
                       static_cast<float>(config.weight_decay)};
    const auto beta = static_cast<float>(config.sign_beta);
    ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      MomentBlock m(inputs, outputs, 2, 1, half);
      ForBlocks(begin, end, half, [&](int64_t at, int64_t count) {
        LionRow({inputs[0].as<float>() + at, inputs[1].as<float>() + at, m.Read(at, count),
                 outputs[0].as<float>() + at, m.Target(at)},
                step, beta, count);
        m.Write(at, count);
      });
    });
    return {};
  });
}

}  // namespace

KernelResult MakeOptimizer(const KernelSpec& spec) {
  if (spec.outputs[0].dtype != ir::DType::kF32) return KernelResult(nullptr);
  if (spec.op == ir::Op::kAdamW) return MakeAdamW(spec);
  return SgdConfig::From(spec.attrs).by_sign() ? MakeLion(spec) : MakeSgd(spec);
}

}  // namespace meshwright::ops::cpu
