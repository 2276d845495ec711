// slice, pad, concat, reshape, transpose, broadcast, shard_slice: any element type.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/parallel.h"
#include "ops/reference/reference.h"
#include "ops/strided_copy.h"

namespace meshwright::ops::reference {
namespace {

// Copies source + source_offset to destination + destination_offset (elements), zeroing the
// destination first when asked.
struct BlockCopy {
  StridedCopy copy;
  int64_t source_offset_bytes = 0;
  int64_t destination_offset_bytes = 0;
  bool zero_first = false;

  Status operator()(const RunContext& context, Inputs inputs, Outputs outputs) const {
    char* out = outputs[0].as<char>();
    if (zero_first) std::memset(out, 0, static_cast<size_t>(outputs[0].type->bytes()));
    copy.Run(context, inputs[0].as<char>() + source_offset_bytes, out + destination_offset_bytes);
    return {};
  }
};

Result<size_t> DimAttr(const KernelSpec& spec) {
  const int64_t dim = spec.attrs.Int("dim");
  if (dim < 0 || dim >= spec.inputs[0].rank()) {
    return Fail(InvalidArgument(
        fmt::format("{}: dim {} is outside the operand's rank", spec.ToString(), dim)));
  }
  return static_cast<size_t>(dim);
}

// The window [start, start + size) of one dim of the operand.
KernelResult MakeWindow(const KernelSpec& spec, size_t dim, int64_t start) {
  const ir::Dims& from = spec.inputs[0].dims;
  const ir::Dims& to = spec.outputs[0].dims;
  if (start < 0 || start + to[dim] > from[dim]) {
    return Fail(InvalidArgument(fmt::format("{}: window [{}, {}) of dim {} is outside the operand",
                                            spec.ToString(), start, start + to[dim], dim)));
  }
  const int64_t bytes = ir::DTypeBytes(spec.inputs[0].dtype);
  const ir::Dims strides = RowMajorStrides(from);
  return MakeFunctionKernel(BlockCopy{StridedCopy(to, strides, RowMajorStrides(to), bytes),
                                      start * strides[dim] * bytes, 0, false});
}

KernelResult MakePadOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
  const ir::Dims& from = spec.inputs[0].dims;
  const ir::Dims& to = spec.outputs[0].dims;
  const int64_t before = spec.attrs.Int("before");
  if (before < 0 || before + from[dim] > to[dim]) {
    return Fail(InvalidArgument(
        fmt::format("{}: before={} does not fit dim {}", spec.ToString(), before, dim)));
  }
  const int64_t bytes = ir::DTypeBytes(spec.inputs[0].dtype);
  const ir::Dims strides = RowMajorStrides(to);
  return MakeFunctionKernel(BlockCopy{StridedCopy(from, RowMajorStrides(from), strides, bytes), 0,
                                      before * strides[dim] * bytes, true});
}

KernelResult MakeTransposeOf(const KernelSpec& spec) {
  const std::vector<int64_t> perm = spec.attrs.Ints("perm");
  const ir::Dims from_strides = RowMajorStrides(spec.inputs[0].dims);
  const ir::Dims& to = spec.outputs[0].dims;
  if (perm.size() != to.size()) {
    return Fail(
        InvalidArgument(fmt::format("{}: perm has {} entries", spec.ToString(), perm.size())));
  }
  ir::Dims strides;
  for (int64_t source : perm) strides.push_back(from_strides.at(static_cast<size_t>(source)));
  return MakeFunctionKernel(BlockCopy{
      StridedCopy(to, strides, RowMajorStrides(to), ir::DTypeBytes(spec.inputs[0].dtype))});
}

KernelResult MakeShardSliceOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
  ir::ShardedDims own;
  own.global_dims = spec.inputs[0].dims;
  own.dim_axes.resize(own.global_dims.size());
  own.dim_axes[dim] = spec.attrs.Strs("axes");
  MW_ASSIGN_OR_RETURN(const BlockOffsets offsets,
                      ResolveOffsets(own, spec.outputs[0].dims, spec.coords));
  if (offsets.micro_stride[dim] != 0) {
    return Fail(
        InvalidArgument(fmt::format("{}: 'micro' is not an axis to slice over", spec.ToString())));
  }
  return MakeWindow(spec, dim, offsets.base[dim]);
}

// Along `dims` the operand has no stride.
KernelResult MakeBroadcastOf(const KernelSpec& spec) {
  const ir::Dims& to = spec.outputs[0].dims;
  const std::vector<int64_t> dims = spec.attrs.Ints("dims");
  const ir::Dims own = RowMajorStrides(spec.inputs[0].dims);
  ir::Dims strides(to.size(), 0);
  size_t next = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool repeats = std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
    if (!repeats) strides[i] = own.at(next++);
  }
  return MakeFunctionKernel(BlockCopy{
      StridedCopy(to, strides, RowMajorStrides(to), ir::DTypeBytes(spec.inputs[0].dtype))});
}

KernelResult MakeConcatOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
  const ir::Dims& to = spec.outputs[0].dims;
  const ir::Dims strides = RowMajorStrides(to);
  const int64_t bytes = ir::DTypeBytes(spec.inputs[0].dtype);
  std::vector<BlockCopy> copies;
  int64_t start = 0;
  for (const ir::TensorType& x : spec.inputs) {
    copies.push_back({StridedCopy(x.dims, RowMajorStrides(x.dims), strides, bytes), 0,
                      start * strides[dim] * bytes});
    start += x.dims[dim];
  }
  return MakeFunctionKernel([copies = std::move(copies)](const RunContext& context, Inputs inputs,
                                                         Outputs outputs) -> Status {
    for (size_t i = 0; i < copies.size(); ++i) {
      MW_TRY(copies[i](context, inputs.subspan(i, 1), outputs));
    }
    return {};
  });
}

}  // namespace

KernelResult MakeSlice(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
  return MakeWindow(spec, dim, spec.attrs.Int("start"));
}

KernelResult MakePad(const KernelSpec& spec) { return MakePadOf(spec); }
KernelResult MakeTranspose(const KernelSpec& spec) { return MakeTransposeOf(spec); }
KernelResult MakeShardSlice(const KernelSpec& spec) { return MakeShardSliceOf(spec); }
KernelResult MakeBroadcast(const KernelSpec& spec) { return MakeBroadcastOf(spec); }
KernelResult MakeConcat(const KernelSpec& spec) { return MakeConcatOf(spec); }

KernelResult MakeReshape(const KernelSpec&) {
  return MakeFunctionKernel(
      [](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const char* source = inputs[0].as<char>();
        char* destination = outputs[0].as<char>();
        if (source == destination) return {};
        ParallelRange(
            context, outputs[0].type->bytes(), 4 * kElementGrain, [&](int64_t begin, int64_t end) {
              std::memcpy(destination + begin, source + begin, static_cast<size_t>(end - begin));
            });
        return {};
      });
}

}  // namespace meshwright::ops::reference
