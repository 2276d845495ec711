// slice, pad, reshape, transpose, shard_slice: any element type.
#include <fmt/format.h>

#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {
namespace {

Result<size_t> DimAttr(const KernelSpec& spec) {
  const int64_t dim = spec.attrs.Int("dim");
  if (dim < 0 || dim >= spec.inputs[0].rank()) {
    return Fail(InvalidArgument(
        fmt::format("{}: dim {} is outside the operand's rank", spec.ToString(), dim)));
  }
  return static_cast<size_t>(dim);
}

// Result index i of `dim` is the operand's index i + start; zeros outside of it.
KernelResult MakeWindow(const Maker& maker, size_t dim, int64_t start) {
  const ir::TensorType& from = maker.spec.inputs[0];
  const ir::TensorType& to = maker.spec.outputs[0];
  const int64_t index_bytes =
      Product(from.dims, dim + 1, from.dims.size()) * ir::DTypeBytes(from.dtype);
  CopyRowsArgs args;
  args.rows = Product(from.dims, 0, dim);
  args.from_bytes = from.dims[dim] * index_bytes;
  args.to_bytes = to.dims[dim] * index_bytes;
  args.shift_bytes = start * index_bytes;
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    CopyRowsArgs call = args;
                    call.from = inputs[0].data;
                    call.to = outputs[0].data;
                    return kernels.CopyRows(call, stream);
                  });
}

KernelResult MakeShardSlice(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
  ir::ShardedDims own;
  own.global_dims = spec.inputs[0].dims;
  own.dim_axes.resize(own.global_dims.size());
  own.dim_axes[dim] = spec.attrs.Strs("axes");
  MW_ASSIGN_OR_RETURN(const BlockOffsets offsets,
                      ResolveOffsets(own, spec.outputs[0].dims, spec.coords));
  const int64_t start = offsets.base[dim];
  const bool fits = offsets.micro_stride[dim] == 0 &&
                    start + spec.outputs[0].dims[dim] <= spec.inputs[0].dims[dim];
  if (!fits) {
    return Fail(InvalidArgument(
        fmt::format("{}: the blocks of dim {} do not fit, or 'micro' is among the axes",
                    spec.ToString(), dim)));
  }
  return MakeWindow(maker, dim, start);
}

KernelResult MakeTranspose(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  const std::vector<int64_t> perm = spec.attrs.Ints("perm");
  const ir::Dims from_strides = RowMajorStrides(spec.inputs[0].dims);
  if (perm.size() != from_strides.size()) {
    return Fail(
        InvalidArgument(fmt::format("{}: perm has {} entries", spec.ToString(), perm.size())));
  }
  // Dims that stay neighbours become one.
  ir::Dims dims;
  ir::Dims strides;
  for (size_t i = 0; i < perm.size(); ++i) {
    const int64_t dim = spec.outputs[0].dims[i];
    const int64_t stride = from_strides.at(static_cast<size_t>(perm[i]));
    if (dim == 1) continue;
    if (!dims.empty() && strides.back() == dim * stride) {
      dims.back() *= dim;
      strides.back() = stride;
    } else {
      dims.push_back(dim);
      strides.push_back(stride);
    }
  }
  if (dims.empty()) dims = strides = {1};
  MW_TRY(CheckRank(spec, static_cast<int64_t>(dims.size())));
  TransposeArgs args;
  args.element_bytes = ir::DTypeBytes(spec.inputs[0].dtype);
  args.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), args.dims);
  std::copy(strides.begin(), strides.end(), args.strides);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    TransposeArgs call = args;
                    call.from = inputs[0].data;
                    call.to = outputs[0].data;
                    return kernels.Transpose(call, stream);
                  });
}

}  // namespace

KernelResult MakeStructure(const Maker& maker) {
  switch (maker.spec.op) {
    case ir::Op::kSlice: {
      MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(maker.spec));
      return MakeWindow(maker, dim, maker.spec.attrs.Int("start"));
    }
    case ir::Op::kPad: {
      MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(maker.spec));
      return MakeWindow(maker, dim, -maker.spec.attrs.Int("before"));
    }
    case ir::Op::kShardSlice:
      return MakeShardSlice(maker);
    case ir::Op::kTranspose:
      return MakeTranspose(maker);
    default:
      return MakeFunctionKernel(
          [](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
            if (inputs[0].data == outputs[0].data) return {};
            return context.queue->Copy(outputs[0].data, inputs[0].data, outputs[0].type->bytes());
          });
  }
}

}  // namespace meshwright::ops::cuda
