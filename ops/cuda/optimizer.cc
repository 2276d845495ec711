// clip_multiplier, adamw, sgd, divide. A node of adamw or sgd may be the updates of many tensors:
// group after group of operands and of results.
#include "ir/loss_scale.h"
#include "ops/cuda/cuda.h"
#include "ops/optimizer_math.h"

namespace meshwright::ops::cuda {
namespace {

KernelResult MakeClipMultiplier(const Maker& maker) {
  ClipMultiplierArgs args;
  args.max_norm = maker.spec.attrs.Real("max_norm");
  args.type = TypeOf(maker.spec.inputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    ClipMultiplierArgs call = args;
                    call.sum_squares = inputs[0].data;
                    call.count = inputs[1].data;
                    call.multiplier = outputs[0].data;
                    call.norm = outputs[1].data;
                    return kernels.ClipMultiplier(call, stream);
                  });
}

// What a group of (p, g, states..., multiplier, lr) -> (p, states...) has.
struct Group {
  Inputs inputs;
  Outputs outputs;

  const float* multiplier() const { return inputs[inputs.size() - 2].as<float>(); }
  const float* lr() const { return inputs.back().as<float>(); }
  bool empty() const { return inputs[0].elements() == 0; }
  FloatType type() const { return TypeOf(*inputs[0].type); }
  FloatType gradient() const { return TypeOf(*inputs[1].type); }
  FloatType moments() const { return TypeOf(*inputs[2].type); }

  UpdateTensor tensor() const {
    UpdateTensor tensor;
    tensor.p = inputs[0].data;
    tensor.g = inputs[1].data;
    tensor.m = inputs[2].data;
    tensor.p_to = outputs[0].data;
    tensor.m_to = outputs[1].data;
    if (outputs.size() > 2) {
      tensor.v = inputs[3].data;
      tensor.v_to = outputs[2].data;
    }
    tensor.count = inputs[0].elements();
    return tensor;
  }
};

// Calls launch(UpdateArgs) for as many groups at once as fit and share their scalars.
template <typename Launch>
Code ForUpdates(size_t states, bool skips, const RunContext& context, Inputs inputs,
                Outputs outputs, const Launch& launch) {
  UpdateArgs args;
  args.skips = skips;
  args.state = context.state;
  const auto flush = [&] {
    const Code code = args.tensor_count == 0 ? device::cuda::kSuccess : launch(args);
    args.tensor_count = 0;
    return code;
  };
  const size_t groups = outputs.size() / (1 + states);
  for (size_t i = 0; i < groups; ++i) {
    const Group group{inputs.subspan(i * (4 + states), 4 + states),
                      outputs.subspan(i * (1 + states), 1 + states)};
    if (group.empty()) continue;
    const bool joins = args.tensor_count < kMaxUpdates && args.multiplier == group.multiplier() &&
                       args.lr == group.lr() && args.type == group.type() &&
                       args.gradient == group.gradient() && args.moments == group.moments();
    if (!joins) {
      const Code code = flush();
      if (code != device::cuda::kSuccess) return code;
    }
    args.multiplier = group.multiplier();
    args.lr = group.lr();
    args.type = group.type();
    args.gradient = group.gradient();
    args.moments = group.moments();
    args.tensors[args.tensor_count++] = group.tensor();
  }
  return flush();
}

KernelResult MakeAdamW(const Maker& maker) {
  return MakeCall(
      maker, static_cast<int64_t>(sizeof(AdamWScalars)),
      [config = AdamWConfig::From(maker.spec.attrs),
       skips = maker.spec.attrs.Int(ir::kSkipsAttr) != 0](Kernels& kernels, StreamHandle stream,
                                                          const RunContext& context, Inputs inputs,
                                                          Outputs outputs) {
        return ForUpdates(2, skips, context, inputs, outputs, [&](const UpdateArgs& update) {
          return kernels.AdamW({update, ScratchOf<AdamWScalars>(context), config.beta1,
                                config.beta2, config.eps, config.weight_decay},
                               stream);
        });
      });
}

KernelResult MakeSgd(const Maker& maker) {
  return MakeCall(
      maker, 0,
      [config = SgdConfig::From(maker.spec.attrs),
       skips = maker.spec.attrs.Int(ir::kSkipsAttr) != 0](Kernels& kernels, StreamHandle stream,
                                                          const RunContext& context, Inputs inputs,
                                                          Outputs outputs) {
        return ForUpdates(1, skips, context, inputs, outputs, [&](const UpdateArgs& update) {
          return kernels.Sgd({update, config.momentum, config.weight_decay, config.sign_beta},
                             stream);
        });
      });
}

}  // namespace

KernelResult MakeOptimizer(const Maker& maker) {
  switch (maker.spec.op) {
    case ir::Op::kClipMultiplier:
      return MakeClipMultiplier(maker);
    case ir::Op::kAdamW:
      return ir::IsFactored(maker.spec.attrs) ? MakeAdafactor(maker) : MakeAdamW(maker);
    default:
      return MakeSgd(maker);
  }
}

}  // namespace meshwright::ops::cuda
