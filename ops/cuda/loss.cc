// cross_entropy, its gradient, logsumexp, pick, nll. cross_entropy is the row's lse and the logit
// at its label, and nll of these.
#include "ops/cuda/cuda.h"
#include "ops/token_ids.h"

namespace meshwright::ops::cuda {
namespace {

int32_t IgnoreIndex(const KernelSpec& spec) {
  return static_cast<int32_t>(spec.attrs.Int("ignore_index", kDefaultIgnoreIndex));
}

LogSumExpArgs LogSumExpOf(const KernelSpec& spec) {
  LogSumExpArgs args;
  const Rows rows = RowsOf(spec.inputs[0]);
  args.rows = rows.count;
  args.width = rows.width;
  args.ignore = IgnoreIndex(spec);
  args.type = TypeOf(spec.inputs[0]);
  return args;
}

KernelResult MakeLogSumExp(const Maker& maker) {
  return MakeCall(
      maker, 0,
      [args = LogSumExpOf(maker.spec)](Kernels& kernels, StreamHandle stream, const RunContext&,
                                       Inputs inputs, Outputs outputs) {
        LogSumExpArgs call = args;
        call.x = inputs[0].data;
        call.lse = outputs[0].as<float>();
        return kernels.LogSumExp(call, stream);
      });
}

KernelResult MakeCrossEntropy(const Maker& maker) {
  const LogSumExpArgs args = LogSumExpOf(maker.spec);
  return MakeCall(maker, args.rows * static_cast<int64_t>(sizeof(float)),
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    LogSumExpArgs row = args;
                    row.x = inputs[0].data;
                    row.labels = inputs[1].as<int32_t>();
                    row.lse = outputs[2].as<float>();
                    row.picked = ScratchOf<float>(context);
                    row.fault = FaultOf(context, ir::Op::kCrossEntropy, args.width);
                    const Code code = kernels.LogSumExp(row, stream);
                    if (code != device::cuda::kSuccess) return code;
                    NllArgs sum;
                    sum.lse = row.lse;
                    sum.picked = row.picked;
                    sum.labels = row.labels;
                    sum.loss = outputs[0].data;
                    sum.count = outputs[1].data;
                    sum.rows = args.rows;
                    sum.ignore = args.ignore;
                    return kernels.Nll(sum, stream);
                  });
}

KernelResult MakeCrossEntropyGrad(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  CrossEntropyGradArgs args;
  const Rows rows = RowsOf(spec.inputs[0]);
  args.rows = rows.count;
  args.width = rows.width;
  args.ignore = IgnoreIndex(spec);
  args.type = TypeOf(spec.inputs[0]);
  return MakeCall(maker, 0,
                  [args, block](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                Inputs inputs, Outputs outputs) {
                    const int dim = static_cast<int>(block.local_dims.size()) - 1;
                    CrossEntropyGradArgs call = args;
                    call.logits = inputs[0].data;
                    call.labels = inputs[1].as<int32_t>();
                    call.lse = inputs[2].as<float>();
                    call.dloss = inputs[3].as<float>();
                    call.to = outputs[0].data;
                    call.first_column = block.Start(dim, context.microbatch);
                    call.valid_columns = block.Valid(dim, context.microbatch);
                    return kernels.CrossEntropyGrad(call, stream);
                  });
}

KernelResult MakePick(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  PickArgs args;
  const Rows rows = RowsOf(spec.inputs[0]);
  args.rows = rows.count;
  args.width = rows.width;
  args.ignore = IgnoreIndex(spec);
  args.type = TypeOf(spec.inputs[0]);
  return MakeCall(maker, 0,
                  [args, block](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                Inputs inputs, Outputs outputs) {
                    const int dim = static_cast<int>(block.local_dims.size()) - 1;
                    PickArgs call = args;
                    call.logits = inputs[0].data;
                    call.labels = inputs[1].as<int32_t>();
                    call.to = outputs[0].as<float>();
                    call.first_column = block.Start(dim, context.microbatch);
                    call.fault = FaultOf(context, ir::Op::kPick, block.global_dims.back());
                    return kernels.Pick(call, stream);
                  });
}

KernelResult MakeNll(const Maker& maker) {
  NllArgs args;
  args.rows = maker.spec.inputs[0].elements();
  args.ignore = IgnoreIndex(maker.spec);
  args.type = TypeOf(maker.spec.inputs[0]);
  args.result = TypeOf(maker.spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    NllArgs call = args;
                    call.lse = inputs[0].data;
                    call.picked = inputs[1].data;
                    call.labels = inputs[2].as<int32_t>();
                    call.loss = outputs[0].data;
                    call.count = outputs[1].data;
                    return kernels.Nll(call, stream);
                  });
}

}  // namespace

KernelResult MakeLoss(const Maker& maker) {
  switch (maker.spec.op) {
    case ir::Op::kLogSumExp:
      return MakeLogSumExp(maker);
    case ir::Op::kCrossEntropy:
      return MakeCrossEntropy(maker);
    case ir::Op::kCrossEntropyGrad:
      return MakeCrossEntropyGrad(maker);
    case ir::Op::kPick:
      return MakePick(maker);
    default:
      return MakeNll(maker);
  }
}

}  // namespace meshwright::ops::cuda
