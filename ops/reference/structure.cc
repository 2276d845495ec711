// slice, pad, reshape, transpose, shard_slice (any element type), reduce_sum, sum_squares.
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

KernelResult MakePad(const KernelSpec& spec) {
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

KernelResult MakeTranspose(const KernelSpec& spec) {
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

KernelResult MakeShardSlice(const KernelSpec& spec) {
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

KernelResult MakeReshape() {
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

// Every element of the operand is added to its result element in operand order.
template <typename T>
KernelResult MakeReduceSum(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  std::vector<bool> reduced(dims.size(), false);
  for (int64_t dim : spec.attrs.Ints("dims")) reduced.at(static_cast<size_t>(dim)) = true;
  ir::Dims strides(dims.size(), 0);  // in the result
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (reduced[i]) continue;
    strides[i] = stride;
    stride *= dims[i];
  }
  return MakeFunctionKernel(
      [dims, strides, sums = std::vector<double>(static_cast<size_t>(stride))](
          const RunContext&, Inputs inputs, Outputs outputs) mutable -> Status {
        std::fill(sums.begin(), sums.end(), 0.0);
        const T* x = inputs[0].as<T>();
        const size_t rank = dims.size();
        const int64_t inner = rank == 0 ? 1 : dims[rank - 1];
        const int64_t step = rank == 0 ? 0 : strides[rank - 1];
        const int64_t rows = inner == 0 ? 0 : inputs[0].elements() / inner;
        for (int64_t row = 0; row < rows; ++row) {
          int64_t target = 0;
          int64_t rest = row;
          for (size_t i = rank - 1; rank > 0 && i-- > 0;) {
            target += rest % dims[i] * strides[i];
            rest /= dims[i];
          }
          double* sum = sums.data() + target;
          for (int64_t i = 0; i < inner; ++i) sum[i * step] += x[row * inner + i];
        }
        T* out = outputs[0].as<T>();
        for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<T>(sums[i]);
        return {};
      });
}

template <typename T>
KernelResult MakeSumSquares() {
  return MakeFunctionKernel([](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const T* x = inputs[0].as<T>();
    const int64_t count = inputs[0].elements();
    double total = 0;
    for (int64_t i = 0; i < count; ++i) {
      total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    *outputs[0].as<T>() = static_cast<T>(total);
    return {};
  });
}

}  // namespace

KernelResult MakeStructure(const KernelSpec& spec) {
  switch (spec.op) {
    case ir::Op::kSlice: {
      MW_ASSIGN_OR_RETURN(const size_t dim, DimAttr(spec));
      return MakeWindow(spec, dim, spec.attrs.Int("start"));
    }
    case ir::Op::kPad:
      return MakePad(spec);
    case ir::Op::kReshape:
      return MakeReshape();
    case ir::Op::kTranspose:
      return MakeTranspose(spec);
    case ir::Op::kShardSlice:
      return MakeShardSlice(spec);
    default:
      return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
        using T = decltype(zero);
        if (spec.op == ir::Op::kReduceSum) return MakeReduceSum<T>(spec);
        return MakeSumSquares<T>();
      });
  }
}

}  // namespace meshwright::ops::reference
