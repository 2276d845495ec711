// reduce_sum, reduce_max, sum_squares.
#include <algorithm>

#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {
namespace {

constexpr int64_t kWantedBlocks = 132 * 8;
constexpr int64_t kRowPart = 4096;   // reduced elements that are worth a block of their own
constexpr int64_t kColumnPart = 64;  // the same where a block has columns
constexpr int64_t kColumnsOfABlock = 128;

// Appends a dim, or joins it with the one before.
void AddDim(int64_t dim, int64_t stride, bool joins, int32_t& rank, int64_t* dims,
            int64_t* strides) {
  if (!joins) {
    dims[rank] = 1;
    ++rank;
  }
  dims[rank - 1] *= dim;
  strides[rank - 1] = stride;
}

// Dims of size one are left out; neighbours that are treated alike become one.
ReduceSumArgs Describe(const ir::Dims& dims, const std::vector<int64_t>& reduced) {
  ReduceSumArgs args;
  const ir::Dims strides = RowMajorStrides(dims);
  bool before = false;
  bool any = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    const bool reduces =
        std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) != reduced.end();
    const bool joins = any && reduces == before;
    if (reduces) {
      AddDim(dims[i], strides[i], joins, args.reduced_rank, args.reduced_dims,
             args.reduced_strides);
      args.reduced *= dims[i];
    } else {
      AddDim(dims[i], strides[i], joins, args.kept_rank, args.kept_dims, args.kept_strides);
      args.outputs *= dims[i];
    }
    before = reduces;
    any = true;
  }
  args.last_is_kept = any && !before;
  if (args.reduced_rank == 0) {
    AddDim(1, 1, false, args.reduced_rank, args.reduced_dims, args.reduced_strides);
  }
  return args;
}

// Enough parts to fill a GPU, none of them too small; 1: there are enough results.
int64_t SplitsOf(const ReduceSumArgs& args) {
  const int64_t blocks =
      args.last_is_kept ? (args.outputs + kColumnsOfABlock - 1) / kColumnsOfABlock : args.outputs;
  const int64_t part = args.last_is_kept ? kColumnPart : kRowPart;
  const int64_t wanted = kWantedBlocks / std::max<int64_t>(blocks, 1);
  return std::max<int64_t>(std::min(wanted, args.reduced / part), 1);
}

KernelResult MakeReduceSum(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_TRY(CheckRank(spec, spec.inputs[0].rank()));
  ReduceSumArgs args = Describe(spec.inputs[0].dims, spec.attrs.Ints("dims"));
  args.type = TypeOf(spec.inputs[0]);
  args.result = TypeOf(spec.outputs[0]);
  args.splits = SplitsOf(args);
  const int64_t scratch =
      args.splits == 1 ? 0 : args.splits * args.outputs * static_cast<int64_t>(sizeof(float));
  return MakeCall(maker, scratch,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    ReduceSumArgs call = args;
                    call.x = inputs[0].data;
                    call.y = outputs[0].data;
                    if (args.splits > 1) call.scratch = ScratchOf<float>(context);
                    return kernels.ReduceSum(call, stream);
                  });
}

KernelResult MakeSumSquares(const Maker& maker) {
  SumSquaresArgs args;
  args.count = maker.spec.inputs[0].elements();
  args.type = TypeOf(maker.spec.inputs[0]);
  args.result = TypeOf(maker.spec.outputs[0]);
  return MakeCall(maker, kSumSquaresParts * static_cast<int64_t>(sizeof(float)),
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    SumSquaresArgs call = args;
                    call.x = inputs[0].data;
                    call.y = outputs[0].data;
                    call.scratch = ScratchOf<float>(context);
                    return kernels.SumSquares(call, stream);
                  });
}

KernelResult MakeReduceMaxOf(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_TRY(CheckRank(spec, spec.inputs[0].rank()));
  ReduceMaxArgs args{Describe(spec.inputs[0].dims, spec.attrs.Ints("dims"))};
  args.dims.type = TypeOf(spec.inputs[0]);
  args.dims.result = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    ReduceMaxArgs call = args;
                    call.dims.x = inputs[0].data;
                    call.dims.y = outputs[0].data;
                    return kernels.ReduceMax(call, stream);
                  });
}

}  // namespace

KernelResult MakeReduction(const Maker& maker) {
  switch (maker.spec.op) {
    case ir::Op::kReduceSum:
      return MakeReduceSum(maker);
    case ir::Op::kReduceMax:
      return MakeReduceMaxOf(maker);
    default:
      return MakeSumSquares(maker);
  }
}

}  // namespace meshwright::ops::cuda
