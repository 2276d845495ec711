#include "ops/cuda/call.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::ops::cuda {

std::optional<FloatType> FloatTypeOf(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return FloatType::kF32;
    case ir::DType::kBF16:
      return FloatType::kBF16;
    case ir::DType::kF16:
      return FloatType::kF16;
    default:
      return std::nullopt;
  }
}

bool HasTypesOfGpus(const KernelSpec& spec) {
  const auto ours = [](const ir::TensorType& type) {
    return type.dtype == ir::DType::kI32 || type.dtype == ir::DType::kBool ||
           FloatTypeOf(type.dtype).has_value();
  };
  return std::all_of(spec.inputs.begin(), spec.inputs.end(), ours) &&
         std::all_of(spec.outputs.begin(), spec.outputs.end(), ours);
}

FloatType TypeOf(const ir::TensorType& type) {
  const std::optional<FloatType> known = FloatTypeOf(type.dtype);
  MW_CHECK(known.has_value()) << type.ToString() << " is not computed with on GPUs";
  return *known;
}

Rows RowsOf(const ir::TensorType& type) {
  const size_t rank = type.dims.size();
  MW_CHECK(rank >= 1) << "a scalar has no rows";
  return {Product(type.dims, 0, rank - 1), type.dims[rank - 1]};
}

FaultArgs FaultOf(const RunContext& context, ir::Op op, int64_t table_rows) {
  return {context.fault, 1 + static_cast<int32_t>(op), table_rows};
}

RunsArgs RunsOf(const ShardBlock& block, int32_t microbatch) {
  const GlobalRuns runs(block);
  RunsArgs args;
  args.runs = runs.runs();
  args.run_length = runs.run_length();
  args.valid = args.run_length;
  if (runs.split_dim() < 0) return args;
  const ir::Dims strides = RowMajorStrides(block.global_dims);
  const size_t split = static_cast<size_t>(runs.split_dim());
  args.valid = block.Valid(runs.split_dim(), microbatch) * strides[split];
  args.first = block.Start(runs.split_dim(), microbatch) * strides[split];
  MW_CHECK(split < static_cast<size_t>(kMaxDims)) << "a block split along dim " << split;
  args.outer_rank = runs.split_dim();
  for (size_t d = 0; d < split; ++d) {
    args.local_dims[d] = block.local_dims[d];
    args.global_dims[d] = block.global_dims[d];
    args.starts[d] = block.Start(static_cast<int>(d), microbatch);
    args.strides[d] = strides[d];
  }
  return args;
}

Status CheckRank(const KernelSpec& spec, int64_t rank) {
  if (rank <= kMaxDims) return {};
  return Unimplemented(
      fmt::format("{}: GPUs take at most {} dims here", spec.ToString(), kMaxDims));
}

}  // namespace meshwright::ops::cuda
