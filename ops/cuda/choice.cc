// gather, scatter_add, one_hot, top_k, and softmax of rows.
#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {
namespace {

AlongArgs AlongOf(const KernelSpec& spec, const ir::Dims& values, const ir::Dims& ids) {
  const auto dim = static_cast<size_t>(spec.attrs.Int("dim"));
  return {Product(values, 0, dim), Product(values, dim + 1, values.size()), values[dim], ids[dim]};
}

}  // namespace

KernelResult MakeGather(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  GatherArgs args;
  args.along = AlongOf(spec, spec.inputs[0].dims, spec.inputs[1].dims);
  args.element_bytes = ir::DTypeBytes(spec.inputs[0].dtype);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    GatherArgs call = args;
                    call.x = inputs[0].data;
                    call.ids = inputs[1].as<int32_t>();
                    call.to = outputs[0].data;
                    call.fault = FaultOf(context, ir::Op::kGather, args.along.size);
                    return kernels.Gather(call, stream);
                  });
}

KernelResult MakeScatterAdd(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  ScatterAddArgs args;
  args.along = AlongOf(spec, spec.outputs[0].dims, spec.inputs[0].dims);
  args.type = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    ScatterAddArgs call = args;
                    call.ids = inputs[0].as<int32_t>();
                    call.y = inputs[1].data;
                    call.to = outputs[0].data;
                    call.fault = FaultOf(context, ir::Op::kScatterAdd, args.along.size);
                    return kernels.ScatterAdd(call, stream);
                  });
}

KernelResult MakeOneHot(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  OneHotArgs args;
  args.count = spec.inputs[0].elements();
  args.size = spec.attrs.Int("size");
  args.ignored = spec.attrs.Int("ignore_index", INT64_MIN);
  args.type = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    OneHotArgs call = args;
                    call.ids = inputs[0].as<int32_t>();
                    call.to = outputs[0].data;
                    return kernels.OneHot(call, stream);
                  });
}

KernelResult MakeTopK(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  TopKArgs args;
  args.rows = RowsOf(spec.inputs[0]).count;
  args.width = RowsOf(spec.inputs[0]).width;
  args.k = spec.attrs.Int("k");
  args.type = TypeOf(spec.inputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    TopKArgs call = args;
                    call.x = inputs[0].data;
                    call.values = outputs[0].data;
                    call.ids = outputs[1].as<int32_t>();
                    return kernels.TopK(call, stream);
                  });
}

KernelResult MakeSoftmax(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  SoftmaxArgs args;
  args.rows = RowsOf(spec.inputs[0]).count;
  args.width = RowsOf(spec.inputs[0]).width;
  args.log = spec.op == ir::Op::kLogSoftmax;
  args.type = TypeOf(spec.inputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    SoftmaxArgs call = args;
                    call.x = inputs[0].data;
                    call.y = outputs[0].data;
                    return kernels.Softmax(call, stream);
                  });
}

}  // namespace meshwright::ops::cuda
