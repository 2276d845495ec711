// slice, pad, concat, reshape, transpose, broadcast, shard_slice: any element type.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

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

// The result's element at an index is the operand's at the sum of index * stride.
KernelResult MakeStrided(const Maker& maker, const ir::Dims& of_dims, const ir::Dims& of_strides) {
  const KernelSpec& spec = maker.spec;
  // Dims that stay neighbours become one.
  ir::Dims dims;
  ir::Dims strides;
  for (size_t i = 0; i < of_dims.size(); ++i) {
    const int64_t dim = of_dims[i];
    const int64_t stride = of_strides[i];
    if (dim == 1) continue;
    if (!dims.empty() && strides.back() == dim * stride) {
      dims.back() *= dim;
      strides.back() = stride;
    } else {
      dims.push_back(dim);
      strides.push_back(stride);
    }
  }
  // A last dim along which the operand repeats is a dim of runs of one element.
  if (dims.empty() || strides.back() == 0) {
    dims.push_back(1);
    strides.push_back(1);
  }
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

KernelResult MakeTranspose(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  const std::vector<int64_t> perm = spec.attrs.Ints("perm");
  const ir::Dims from_strides = RowMajorStrides(spec.inputs[0].dims);
  if (perm.size() != from_strides.size()) {
    return Fail(
        InvalidArgument(fmt::format("{}: perm has {} entries", spec.ToString(), perm.size())));
  }
  ir::Dims strides;
  for (const int64_t dim : perm) strides.push_back(from_strides.at(static_cast<size_t>(dim)));
  return MakeStrided(maker, spec.outputs[0].dims, strides);
}

KernelResult MakeBroadcast(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  const std::vector<int64_t> repeated = spec.attrs.Ints("dims");
  const ir::Dims own = RowMajorStrides(spec.inputs[0].dims);
  ir::Dims strides;
  size_t next = 0;
  for (size_t i = 0; i < spec.outputs[0].dims.size(); ++i) {
    const bool repeats =
        std::find(repeated.begin(), repeated.end(), static_cast<int64_t>(i)) != repeated.end();
    strides.push_back(repeats ? 0 : own.at(next++));
  }
  return MakeStrided(maker, spec.outputs[0].dims, strides);
}

// Each operand is a window of every row of the result.
KernelResult MakeConcat(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
  const ir::Dims& to = spec.outputs[0].dims;
  const int64_t index_bytes =
      Product(to, dim + 1, to.size()) * ir::DTypeBytes(spec.outputs[0].dtype);
  std::vector<CopyRowsArgs> parts;
  int64_t place = 0;
  for (const ir::TensorType& x : spec.inputs) {
    CopyRowsArgs part;
    part.rows = Product(to, 0, dim);
    part.from_bytes = part.to_bytes = x.dims[dim] * index_bytes;
    part.to_row_bytes = to[dim] * index_bytes;
    part.place_bytes = place;
    place += part.to_bytes;
    parts.push_back(part);
  }
  return MakeCall(maker, 0,
                  [parts](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                          Outputs outputs) {
                    Code code = 0;
                    for (size_t i = 0; i < parts.size() && code == 0; ++i) {
                      CopyRowsArgs call = parts[i];
                      call.from = inputs[i].data;
                      call.to = outputs[0].data;
                      code = kernels.CopyRows(call, stream);
                    }
                    return code;
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
    case ir::Op::kBroadcast:
      return MakeBroadcast(maker);
    case ir::Op::kConcat:
      return MakeConcat(maker);
    default:
      return MakeFunctionKernel(
          [](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
            if (inputs[0].data == outputs[0].data) return {};
            return context.queue->Copy(outputs[0].data, inputs[0].data, outputs[0].type->bytes());
          });
  }
}

}  // namespace meshwright::ops::cuda
