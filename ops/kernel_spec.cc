#include "ops/kernel_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "ir/stage_block.h"

namespace meshwright::ops {
namespace {

std::string FormatTypes(const std::vector<ir::TensorType>& types) {
  std::string text;
  for (const ir::TensorType& type : types) {
    if (!text.empty()) text += ", ";
    text += type.ToString();
  }
  return text;
}

}  // namespace

int64_t ShardBlock::Valid(int dim, int32_t microbatch) const {
  const size_t i = static_cast<size_t>(dim);
  return std::clamp<int64_t>(global_dims[i] - Start(dim, microbatch), 0, local_dims[i]);
}

Result<ShardBlock> KernelSpec::BlockOf(const ir::TensorType& local) const {
  const ir::ShardedDims sharded = ir::ShardedDims::FromAttrs(attrs);
  ShardBlock block;
  block.local_dims = local.dims;
  block.global_dims = sharded.whole() ? local.dims : sharded.global_dims;
  MW_ASSIGN_OR_RETURN(block.offsets, ResolveOffsets(sharded, local.dims, coords));
  if (const std::optional<ir::StageBlock> part = ir::StageBlock::FromAttrs(attrs)) {
    if (part->dim >= static_cast<int>(local.dims.size())) {
      return Fail(InvalidArgument(fmt::format("{}: a block along dim {}", ToString(), part->dim)));
    }
    const auto dim = static_cast<size_t>(part->dim);
    block.offsets.base[dim] += part->first;
    block.global_dims[dim] = part->whole;
  }
  return block;
}

std::string KernelSpec::ToString() const {
  return fmt::format("{} ({}) -> ({})", ir::OpName(op), FormatTypes(inputs), FormatTypes(outputs));
}

Status NoKernel(const KernelSpec& spec, const char* backend) {
  return Unimplemented(fmt::format("no {} kernel for {}; supported element types are f32 and f64",
                                   backend, spec.ToString()));
}

int64_t Product(const ir::Dims& dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= dims[i];
  return product;
}

ir::Dims RowMajorStrides(const ir::Dims& dims) {
  ir::Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

}  // namespace meshwright::ops
