// constant, random_normal, learning_rate, dropout, noise: values of the step and of global
// positions.
#include <fmt/format.h>

#include <utility>

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
  const std::string text = attrs.Str("schedule", "constant");
  const auto parsed = ir::ParseSchedule(text);
  if (!parsed) {
    return Fail(InvalidArgument(
        fmt::format("learning_rate: unknown schedule '{}'; known: {}", text, ir::kSchedules)));
  }
  LearningRateArgs args;
  for (const auto& [name, schedule] :
       {std::pair("linear", Schedule::kLinear), std::pair("cosine", Schedule::kCosine),
        std::pair(ir::kPolynomial, Schedule::kPolynomial),
        std::pair(ir::kRestarts, Schedule::kRestarts),
        std::pair(ir::kInverseSqrt, Schedule::kInverseSqrt),
        std::pair("relative", Schedule::kRelative),
        std::pair("relative_warmup", Schedule::kRelativeWarmup)}) {
    if (parsed->name == name) args.schedule = schedule;
  }
  args.number = parsed->number;
  args.lr = attrs.Real("lr");
  args.min_lr = attrs.Real("min_lr");
  args.warmup_steps = attrs.Int("warmup_steps");
  args.total_steps = attrs.Int("total_steps");
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
