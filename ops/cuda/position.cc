// rotary, segments: what depends on places in a row.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ir/rotary.h"
#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {

TokenPlaces PlacesOf(const KernelSpec& spec, const TokenBlock& block, int64_t tokens) {
  const ir::SequenceOrder order = ir::SequenceOrder::FromAttrs(spec.attrs);
  return {block.start, order.plain() ? 0 : tokens / (2 * order.parts), order.parts};
}

namespace {

KernelResult MakeRotary(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  if (spec.inputs.size() > 1) return Fail(NoKernel(spec, "cuda"));
  const ir::TensorType& type = spec.inputs[0];
  if (type.rank() != 4 || type.dims[3] % 2 != 0) {
    return Fail(InvalidArgument(
        fmt::format("rotary: needs [b, s, h, e] with even e, got {}", type.ToString())));
  }
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(type));
  MW_ASSIGN_OR_RETURN(const TokenBlock tokens, TokenBlock::Of(spec, block));
  if (block.global_dims[3] != block.local_dims[3]) {
    return Fail(InvalidArgument(fmt::format(
        "rotary: the head dim of {} is split; split batch, sequence or heads", type.ToString())));
  }
  if (type.dims[3] / 2 > kMaxRotaryPairs) {
    return Fail(Unimplemented(fmt::format("rotary: GPUs take heads of at most {}, got {}",
                                          2 * kMaxRotaryPairs, type.ToString())));
  }
  RotaryArgs args;
  args.batch = type.dims[0];
  args.sequence = type.dims[1];
  args.heads = type.dims[2];
  args.head_size = type.dims[3];
  MW_ASSIGN_OR_RETURN(const std::vector<double> frequencies,
                      ir::RotaryFrequencies(spec.attrs, args.head_size / 2));
  std::copy(frequencies.begin(), frequencies.end(), args.frequencies);
  args.sign = spec.attrs.Int("inverse") != 0 ? -1.0f : 1.0f;
  args.places = PlacesOf(spec, tokens, block.global_dims[1]);
  args.type = TypeOf(type);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    RotaryArgs call = args;
                    call.x = inputs[0].data;
                    call.y = outputs[0].data;
                    return kernels.Rotary(call, stream);
                  });
}

KernelResult MakeSegments(const Maker& maker) {
  SegmentsArgs args;
  const Rows rows = RowsOf(maker.spec.inputs[0]);
  args.rows = rows.count;
  args.width = rows.width;
  args.separator = static_cast<int32_t>(maker.spec.attrs.Int("separator"));
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    SegmentsArgs call = args;
                    call.ids = inputs[0].as<int32_t>();
                    call.to = outputs[0].as<int32_t>();
                    return kernels.Segments(call, stream);
                  });
}

}  // namespace

KernelResult MakePosition(const Maker& maker) {
  return maker.spec.op == ir::Op::kRotary ? MakeRotary(maker) : MakeSegments(maker);
}

}  // namespace meshwright::ops::cuda
