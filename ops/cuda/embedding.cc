// embedding and its gradient.
#include <fmt/format.h>

#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {
namespace {

KernelResult MakeForward(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  EmbeddingArgs args;
  args.count = spec.inputs[1].elements();
  args.rows = block.local_dims[0];
  args.row_bytes = block.local_dims[1] * ir::DTypeBytes(spec.inputs[0].dtype);
  return MakeCall(maker, 0,
                  [args, block](Kernels& kernels, StreamHandle stream, const RunContext& context,
                                Inputs inputs, Outputs outputs) {
                    EmbeddingArgs call = args;
                    call.table = inputs[0].data;
                    call.ids = inputs[1].as<int32_t>();
                    call.to = outputs[0].data;
                    call.first_row = block.Start(0, context.microbatch);
                    call.fault = FaultOf(context, ir::Op::kEmbedding, block.global_dims[0]);
                    return kernels.Embedding(call, stream);
                  });
}

KernelResult MakeGrad(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  EmbeddingGradArgs args;
  args.count = spec.inputs[0].elements();
  args.rows = block.local_dims[0];
  args.width = block.local_dims[1];
  args.type = TypeOf(spec.outputs[0]);
  if (args.count > INT32_MAX) {
    return Fail(Unimplemented(fmt::format(
        "{}: GPUs take at most 2^31 ids here; use more microbatches", spec.ToString())));
  }
  // The sums come first: loads of 16 bytes need their alignment.
  const int64_t sums = EmbeddingParts(args.count) * 2 * args.width;
  const int64_t words = sums + 2 * args.rows + 1 + 2 * args.count;
  return MakeCall(maker, words * static_cast<int64_t>(sizeof(int32_t)),
                  [args, block, sums](Kernels& kernels, StreamHandle stream,
                                      const RunContext& context, Inputs inputs, Outputs outputs) {
                    EmbeddingGradArgs call = args;
                    call.ids = inputs[0].as<int32_t>();
                    call.dy = inputs[1].data;
                    call.accumulator = inputs.size() > 2 ? inputs[2].data : nullptr;
                    call.to = outputs[0].data;
                    call.sums = ScratchOf<float>(context);
                    call.scratch = ScratchOf<int32_t>(context) + sums;
                    call.first_row = block.Start(0, context.microbatch);
                    call.fault = FaultOf(context, ir::Op::kEmbeddingGrad, block.global_dims[0]);
                    return kernels.EmbeddingGrad(call, stream);
                  });
}

}  // namespace

KernelResult MakeEmbedding(const Maker& maker) {
  return maker.spec.op == ir::Op::kEmbedding ? MakeForward(maker) : MakeGrad(maker);
}

}  // namespace meshwright::ops::cuda
