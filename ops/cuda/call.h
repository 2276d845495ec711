// Call: a Kernel that is calls of our own kernels, and what the files of this folder share to make
// them.
//
// Thread rule: as Kernel. Ownership: device and toolkit outlive what is made of them.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "device/cuda/device.h"
#include "ops/cuda/toolkit.h"
#include "ops/global_runs.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cuda {

// What a kernel is made of.
struct Maker {
  const KernelSpec& spec;
  device::cuda::CudaDevice& device;
  Toolkit& toolkit;
};

// F: Code(Kernels&, StreamHandle, const RunContext&, Inputs, Outputs).
template <typename F>
class Call final : public Kernel {
 public:
  Call(const Maker& maker, int64_t scratch_bytes, F function)
      : device_(maker.device),
        kernels_(*maker.toolkit.kernels),
        op_(maker.spec.op),
        scratch_bytes_(scratch_bytes),
        function_(std::move(function)) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    const Code code = function_(kernels_, context.queue->native(), context, inputs, outputs);
    return device_.context().errors.Check(code, ir::OpName(op_));
  }
  int64_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  device::cuda::CudaDevice& device_;
  Kernels& kernels_;
  const ir::Op op_;
  const int64_t scratch_bytes_;
  F function_;
};

template <typename F>
KernelResult MakeCall(const Maker& maker, int64_t scratch_bytes, F function) {
  return std::unique_ptr<Kernel>(
      std::make_unique<Call<F>>(maker, scratch_bytes, std::move(function)));
}

// Whether all tensors are of types that our kernels take: f32, bf16, f16, i32, bool.
bool HasTypesOfGpus(const KernelSpec& spec);
// Null for types that our kernels do not compute with.
std::optional<FloatType> FloatTypeOf(ir::DType dtype);
// REQUIRES such a type.
FloatType TypeOf(const ir::TensorType& type);

// Elements in rows of the last dim.
struct Rows {
  int64_t count = 0;
  int64_t width = 0;
};
Rows RowsOf(const ir::TensorType& type);

// Scratch of the kernel as an array.
template <typename T>
T* ScratchOf(const RunContext& context) {
  return reinterpret_cast<T*>(context.scratch);
}

FaultArgs FaultOf(const RunContext& context, ir::Op op, int64_t table_rows);

// The block of one microbatch. REQUIRES at most kMaxDims dims.
RunsArgs RunsOf(const ShardBlock& block, int32_t microbatch);
// kUnimplemented when the rank is too high.
Status CheckRank(const KernelSpec& spec, int64_t rank);

}  // namespace meshwright::ops::cuda
