#include "ops/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/composite.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel_spec.h"
#include "ops/kernel_table.h"
#include "ops/widen.h"

namespace meshwright::ops {
namespace {

struct DimParts {
  int64_t parts = 1;        // blocks of the dim
  int64_t index = 0;        // block of this device at microbatch 0
  int64_t micro_index = 0;  // blocks to move per microbatch
};

// Mixed-radix position of the device along the axes of one dim, major axis first.
Result<DimParts> ResolveDim(const std::vector<std::string>& axes, const DeviceCoords& coords) {
  DimParts result;
  for (const std::string& axis : axes) {
    int64_t size = coords.microbatches;
    int64_t coord = 0;
    if (axis != "micro") {
      size_t i = 0;
      while (i < coords.axes.size() && coords.axes[i] != axis) ++i;
      if (i == coords.axes.size()) {
        return Fail(InvalidArgument(fmt::format(
            "sharded dim: axis '{}' is not an axis of the device's mesh [{}] nor 'micro'", axis,
            fmt::join(coords.axes, ","))));
      }
      size = coords.sizes[i];
      coord = coords.coords[i];
    }
    result.parts *= size;
    result.index = result.index * size + coord;
    result.micro_index = result.micro_index * size + (axis == "micro" ? 1 : 0);
  }
  return result;
}

Status NotAKernel(const KernelSpec& spec) {
  return Unimplemented(fmt::format(
      "{} is not a kernel: params and inputs are bound, collectives are run by the executor",
      spec.ToString()));
}

// Null when there is no kernel for the op or its element types.
KernelResult MakeCudaKernel(const Target& target, const KernelSpec& spec) {
  const KernelRow& row = KernelsOf(spec.op);
  if (row.cuda == nullptr || spec.outputs.empty()) return std::unique_ptr<Kernel>();
  if (!row.any_type && !cuda::HasTypesOfGpus(spec)) return std::unique_ptr<Kernel>();
  return row.cuda({spec, static_cast<device::cuda::CudaDevice&>(*target.device), *target.toolkit});
}

}  // namespace

Result<BlockOffsets> ResolveOffsets(const ir::ShardedDims& dims, const ir::Dims& local_dims,
                                    const DeviceCoords& coords) {
  BlockOffsets offsets{ir::Dims(local_dims.size(), 0), ir::Dims(local_dims.size(), 0)};
  if (dims.whole()) return offsets;
  const size_t rank = local_dims.size();
  if (dims.global_dims.size() != rank || dims.dim_axes.size() != rank ||
      (!dims.padded_dims.empty() && dims.padded_dims.size() != rank)) {
    return Fail(InvalidArgument(fmt::format(
        "sharded dims: global_dims [{}] with {} dim_axes do not fit the local shape [{}]",
        fmt::join(dims.global_dims, ","), dims.dim_axes.size(), fmt::join(local_dims, ","))));
  }
  for (size_t i = 0; i < local_dims.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const DimParts part, ResolveDim(dims.dim_axes[i], coords));
    const int64_t whole = dims.padded_dims.empty() ? dims.global_dims[i] : dims.padded_dims[i];
    const int64_t block = (whole + part.parts - 1) / part.parts;
    if (block != local_dims[i]) {
      return Fail(InvalidArgument(fmt::format(
          "sharded dims: dim {} of size {} over axes [{}] ({} parts) has blocks of {}, but the "
          "local shape is [{}]",
          i, whole, fmt::join(dims.dim_axes[i], ","), part.parts, block,
          fmt::join(local_dims, ","))));
    }
    offsets.base[i] = block * part.index;
    offsets.micro_stride[i] = block * part.micro_index;
  }
  return offsets;
}

KernelResult MakeKernel(const Target& target, const ir::Graph& graph, const ir::Node& node,
                        const DeviceCoords& coords) {
  KernelSpec spec;
  spec.op = node.op;
  spec.attrs = node.attrs;
  spec.coords = coords;
  for (ValueId id : node.inputs) spec.inputs.push_back(graph.type(id));
  for (ValueId id : node.outputs) spec.outputs.push_back(graph.type(id));
  return MakeKernel(target, spec);
}

KernelResult MakeKernel(const Target& target, const KernelSpec& spec) {
  if (target.backend == Backend::kCuda) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> native, MakeCudaKernel(target, spec));
    if (native) return native;
    if (spec.op == ir::Op::kFused) return MakeComposite(target, spec);
    return Fail(NoKernel(spec, "cuda"));
  }
  if (target.backend == Backend::kCpu) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> native, MakeCpuKernel(spec));
    if (native) return native;
  }
  if (spec.op == ir::Op::kFused) return MakeComposite(target, spec);
  const KernelRow& row = KernelsOf(spec.op);
  if (row.reference == nullptr) return Fail(NotAKernel(spec));
  if (HasHalves(spec) && !row.any_type) return MakeWidened(target.backend, spec);
  return row.reference(spec);
}

}  // namespace meshwright::ops
