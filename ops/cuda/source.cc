// constant, random_normal, learning_rate, dropout, noise: values of the step and of global
// positions.
#include <fmt/format.h>

#include "base/philox.h"
#include "ir/rate_schedule.h"
#include "ops/cuda/cuda.h"
#include "ops/dropout_mask.h"

namespace meshwright::ops::cuda {
namespace {

KernelResult MakeConstant(const Maker& maker) {
  FillArgs args;
  args.count = maker.spec.outputs[0].elements();
  args.value = maker.spec.attrs.Real("value");
  args.type = TypeOf(maker.spec.outputs[0]);
  return MakeCall(
      maker, 0,
      [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs, Outputs outputs) {
        FillArgs call = args;
        call.to = outputs[0].data;
        return kernels.Fill(call, stream);
      });
}

KernelResult MakeRandomNormal(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_TRY(CheckRank(spec, spec.outputs[0].rank()));
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  RandomNormalArgs args;
  args.stream = StreamOf(spec.attrs.Str("name"));
  args.mean = spec.attrs.Real("mean");
  args.deviation = spec.attrs.Real("std", 1);
  args.type = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args, block](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                Inputs, Outputs outputs) {
                    RandomNormalArgs call = args;
                    call.to = outputs[0].data;
                    call.runs = RunsOf(block, context.microbatch);
                    call.state = context.state;
                    return kernels.RandomNormal(call, stream);
                  });
}

KernelResult MakeLearningRate(const Maker& maker) {
  using Schedule = LearningRateArgs::Schedule;
  const ir::Attrs& attrs = maker.spec.attrs;
  const std::string name = attrs.Str("schedule", "constant");
  LearningRateArgs args;
  if (name == "linear") {
    args.schedule = Schedule::kLinear;
  } else if (name == "cosine") {
    args.schedule = Schedule::kCosine;
  } else if (name == ir::kPolynomial) {
    args.schedule = Schedule::kPolynomial;
  } else if (name == ir::kRestarts) {
    args.schedule = Schedule::kRestarts;
  } else if (name == ir::kInverseSqrt) {
    args.schedule = Schedule::kInverseSqrt;
  } else if (ir::IsRelative(name)) {
    args.schedule = name == "relative" ? Schedule::kRelative : Schedule::kRelativeWarmup;
  } else if (name != "constant") {
    return Fail(InvalidArgument(
        fmt::format("learning_rate: unknown schedule '{}'; known: {}", name, ir::kSchedules)));
  }
  args.lr = attrs.Real("lr");
  args.min_lr = attrs.Real("min_lr");
  args.warmup_steps = attrs.Int("warmup_steps");
  args.total_steps = attrs.Int("total_steps");
  args.power = attrs.Real("power", 1);
  args.cycles = attrs.Int("cycles", 1);
  args.shift = ir::kInverseSqrtShift;
  args.type = TypeOf(maker.spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context, Inputs,
                         Outputs outputs) {
                    LearningRateArgs call = args;
                    call.to = outputs[0].data;
                    call.state = context.state;
                    return kernels.LearningRate(call, stream);
                  });
}

}  // namespace

KernelResult MakeSource(const Maker& maker) {
  switch (maker.spec.op) {
    case ir::Op::kConstant:
      return MakeConstant(maker);
    case ir::Op::kRandomNormal:
      return MakeRandomNormal(maker);
    default:
      return MakeLearningRate(maker);
  }
}

KernelResult MakeDropout(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_TRY(CheckRank(spec, spec.outputs[0].rank()));
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const DropoutMask mask(spec.attrs.Real("rate"), spec.attrs.Str("name"));
  DropoutArgs args;
  args.stream = StreamOf(spec.attrs.Str("name"));
  args.threshold = mask.threshold();
  args.keep_scale = static_cast<float>(mask.keep_scale());
  args.type = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args, block](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                Inputs inputs, Outputs outputs) {
                    DropoutArgs call = args;
                    call.x = inputs[0].data;
                    call.y = outputs[0].data;
                    call.runs = RunsOf(block, context.microbatch);
                    call.state = context.state;
                    return kernels.Dropout(call, stream);
                  });
}

KernelResult MakeNoise(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_TRY(CheckRank(spec, spec.outputs[0].rank()));
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  NoiseArgs args;
  args.stream = StreamOf(spec.attrs.Str("name"));
  args.normal = spec.attrs.Str("kind") == "normal";
  args.type = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args, block](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                Inputs, Outputs outputs) {
                    NoiseArgs call = args;
                    call.to = outputs[0].data;
                    call.runs = RunsOf(block, context.microbatch);
                    call.state = context.state;
                    return kernels.Noise(call, stream);
                  });
}

}  // namespace meshwright::ops::cuda
