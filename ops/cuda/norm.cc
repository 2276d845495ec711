// layer_norm, rms_norm and their gradients.
#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {
namespace {

KernelResult MakeForward(const Maker& maker, bool has_mean) {
  NormArgs args;
  const Rows rows = RowsOf(maker.spec.inputs[0]);
  args.rows = rows.count;
  args.width = rows.width;
  args.eps = static_cast<float>(maker.spec.attrs.Real("eps"));
  args.type = TypeOf(maker.spec.inputs[0]);
  args.result = TypeOf(maker.spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args, has_mean](Kernels& kernels, StreamHandle stream, const RunContext&,
                                   Inputs inputs, Outputs outputs) {
                    NormArgs call = args;
                    call.x = inputs[0].data;
                    call.w = inputs[1].data;
                    call.b = has_mean ? inputs[2].data : nullptr;
                    call.y = outputs[0].data;
                    call.mean = has_mean ? outputs[1].as<float>() : nullptr;
                    call.rstd = outputs[has_mean ? 2 : 1].as<float>();
                    return kernels.Norm(call, stream);
                  });
}

// layer_norm_grad (x, w, mean, rstd, dy) -> (dx, dw, db); rms_norm_grad (x, w, rstd, dy) -> (dx,
// dw).
KernelResult MakeGrad(const Maker& maker, bool has_mean) {
  NormGradArgs args;
  const Rows rows = RowsOf(maker.spec.inputs[0]);
  args.rows = rows.count;
  args.width = rows.width;
  args.type = TypeOf(maker.spec.inputs[0]);
  const int64_t scratch =
      2 * NormGradParts(rows.count, rows.width) * rows.width * static_cast<int64_t>(sizeof(float));
  return MakeCall(maker, scratch,
                  [args, has_mean](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                   Inputs inputs, Outputs outputs) {
                    NormGradArgs call = args;
                    call.x = inputs[0].data;
                    call.w = inputs[1].data;
                    call.mean = has_mean ? inputs[2].as<float>() : nullptr;
                    call.rstd = inputs[has_mean ? 3 : 2].as<float>();
                    call.dy = inputs[has_mean ? 4 : 3].data;
                    call.dx = outputs[0].data;
                    call.dw = outputs[1].data;
                    call.db = has_mean ? outputs[2].data : nullptr;
                    call.scratch = ScratchOf<float>(context);
                    return kernels.NormGrad(call, stream);
                  });
}

}  // namespace

KernelResult MakeNorm(const Maker& maker) {
  const ir::Op op = maker.spec.op;
  const bool has_mean = op == ir::Op::kLayerNorm || op == ir::Op::kLayerNormGrad;
  const bool forward = op == ir::Op::kLayerNorm || op == ir::Op::kRmsNorm;
  return forward ? MakeForward(maker, has_mean) : MakeGrad(maker, has_mean);
}

}  // namespace meshwright::ops::cuda
