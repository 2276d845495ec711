// KernelSpec: everything about a node that a kernel may depend on, copied out of the graph at load,
// and small helpers that every kernel family uses.
//
// Thread rule: immutable after construction.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernel.h"

namespace meshwright::ops {

// Where a local tensor lies inside the global one. Whole tensors have global_dims == local_dims and
// zero offsets.
struct ShardBlock {
  ir::Dims global_dims;
  ir::Dims local_dims;
  BlockOffsets offsets;

  int64_t Start(int dim, int32_t microbatch) const { return offsets.at(dim, microbatch); }
  // How many of the local entries of `dim` exist globally: uneven blocks are padded at the end.
  int64_t Valid(int dim, int32_t microbatch) const;
};

struct KernelSpec {
  ir::Op op = ir::Op::kInput;
  ir::Attrs attrs;
  std::vector<ir::TensorType> inputs;
  std::vector<ir::TensorType> outputs;
  DeviceCoords coords;

  // The block that `local` is of the tensor described by the attributes {global_dims, dim_axes}.
  // Errors: kInvalidArgument when ranks or block sizes do not fit or an axis is unknown.
  Result<ShardBlock> BlockOf(const ir::TensorType& local) const;
  // "einsum (f32[8,16], f32[16,4]) -> (f32[8,4])", for messages.
  std::string ToString() const;
};

// kUnimplemented: "no reference kernel for add (bf16[4], bf16[4]) -> (bf16[4]); ...".
Status NoKernel(const KernelSpec& spec, const char* backend);

using KernelResult = Result<std::unique_ptr<Kernel>>;

// As ops/kernel.h, for a node that is in no graph.
KernelResult MakeKernel(const Target& target, const KernelSpec& spec);

// Calls make(T{}) with the C++ type of `dtype`; kUnimplemented for other types than f32 and f64.
template <typename Make>
KernelResult ForFloatType(const KernelSpec& spec, ir::DType dtype, Make make) {
  if (dtype == ir::DType::kF64) return make(double{});
  if (dtype == ir::DType::kF32) return make(float{});
  return Fail(NoKernel(spec, "reference"));
}

using Inputs = std::span<const Tensor>;
using Outputs = std::span<const Tensor>;

// A kernel that is one function object: Status(const RunContext&, Inputs, Outputs). What it
// captured is its load-time state.
template <typename F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F function) : function_(std::move(function)) {}
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    return function_(context, inputs, outputs);
  }

 private:
  F function_;
};

template <typename F>
KernelResult MakeFunctionKernel(F function) {
  return std::unique_ptr<Kernel>(std::make_unique<FunctionKernel<F>>(std::move(function)));
}

// Product of dims[begin, end).
int64_t Product(const ir::Dims& dims, size_t begin, size_t end);
inline int64_t Product(const ir::Dims& dims) { return Product(dims, 0, dims.size()); }
// Row-major strides in elements.
ir::Dims RowMajorStrides(const ir::Dims& dims);

}  // namespace meshwright::ops
