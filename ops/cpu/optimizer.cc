// adamw, sgd and lion: one pass over parameters, gradients and state.
#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/cpu/cpu.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_rows.h"
#include "ops/optimizer_math.h"
#include "ops/parallel.h"
#include "ops/skipping.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kWidenedElements = 2048;  // of what lies in 16 bits, at a time
constexpr size_t kMostStates = 2;

// Some elements of all tensors, as f32: where they lie, or copies of those in bf16.
struct Piece {
  const float* p = nullptr;
  const float* g = nullptr;
  std::array<const float*, kMostStates> state = {};
  float* p_out = nullptr;
  std::array<float*, kMostStates> renewed = {};
  int64_t count = 0;
};

bool IsHalf(const ir::TensorType& type) { return type.dtype == ir::DType::kBF16; }

// Copies and what they are of: gradients (operand 1) and state (operands 2 and on).
class Pieces {
 public:
  Pieces(Inputs inputs, Outputs outputs)
      : inputs_(inputs),
        outputs_(outputs),
        half_gradients_(IsHalf(*inputs[1].type)),
        half_state_(IsHalf(*outputs[1].type)) {}

  int64_t Most(int64_t all) const {
    return half_gradients_ || half_state_ ? kWidenedElements : std::max<int64_t>(1, all);
  }
  Piece Read(int64_t first, int64_t count) const {
    Piece piece;
    piece.count = count;
    piece.p = inputs_[0].as<float>() + first;
    piece.p_out = outputs_[0].as<float>() + first;
    float* wide = half_gradients_ || half_state_
                      ? ThreadScratch((1 + int64_t{kMostStates}) * kWidenedElements)
                      : nullptr;
    if (half_gradients_) {
      VecWiden(inputs_[1].as<uint16_t>() + first, wide, count);
      piece.g = wide;
    } else {
      piece.g = inputs_[1].as<float>() + first;
    }
    for (size_t i = 0; i + 1 < outputs_.size(); ++i) {
      if (half_state_) {
        wide += kWidenedElements;
        VecWiden(inputs_[2 + i].as<uint16_t>() + first, wide, count);
        piece.state[i] = wide;
        piece.renewed[i] = wide;
      } else {
        piece.state[i] = inputs_[2 + i].as<float>() + first;
        piece.renewed[i] = outputs_[1 + i].as<float>() + first;
      }
    }
    return piece;
  }
  void Write(const Piece& piece, int64_t first) const {
    if (!half_state_) return;
    for (size_t i = 0; i + 1 < outputs_.size(); ++i) {
      VecNarrow(piece.renewed[i], outputs_[1 + i].as<uint16_t>() + first, piece.count);
    }
  }

 private:
  const Inputs inputs_;
  const Outputs outputs_;
  const bool half_gradients_;
  const bool half_state_;
};

// body(piece) for pieces that make up the tensors.
template <typename Body>
void ForPieces(const RunContext& context, Inputs inputs, Outputs outputs, const Body& body) {
  const Pieces pieces(inputs, outputs);
  ParallelRange(context, inputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
    const int64_t most = pieces.Most(end - begin);
    for (int64_t first = begin; first < end; first += most) {
      const Piece piece = pieces.Read(first, std::min(most, end - first));
      body(piece);
      pieces.Write(piece, first);
    }
  });
}

KernelResult MakeAdamW(const KernelSpec& spec) {
  return MakeFunctionKernel([config = AdamWConfig::From(spec.attrs)](const RunContext& context,
                                                                     Inputs inputs,
                                                                     Outputs outputs) -> Status {
    const AdamWStep step = config.At(context.step, static_cast<double>(*inputs[5].as<float>()),
                                     static_cast<double>(*inputs[4].as<float>()));
    ForPieces(context, inputs, outputs, [&](const Piece& x) {
      VecAdamW({x.p, x.g, x.state[0], x.state[1], x.p_out, x.renewed[0], x.renewed[1]}, step,
               x.count);
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
        ForPieces(context, inputs, outputs, [&](const Piece& x) {
          VecSgd({x.p, x.g, x.state[0], x.p_out, x.renewed[0]}, step, x.count);
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
    ForPieces(context, inputs, outputs, [&](const Piece& x) {
      LionRow({x.p, x.g, x.state[0], x.p_out, x.renewed[0]}, step, beta, x.count);
    });
    return {};
  });
}

KernelResult MakeUpdate(const KernelSpec& spec) {
  // Weights of 16 bits are widened with all else (ops/widen.h).
  if (spec.inputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  if (ir::IsFactored(spec.attrs)) return MakeAdafactor(spec);
  if (spec.op == ir::Op::kAdamW) return MakeAdamW(spec);
  return SgdConfig::From(spec.attrs).by_sign() ? MakeLion(spec) : MakeSgd(spec);
}

}  // namespace

KernelResult MakeOptimizer(const KernelSpec& spec) { return Skipping(spec, MakeUpdate(spec)); }

}  // namespace meshwright::ops::cpu
