// One emulated GPU with emulated libraries, and single nodes run on it, for tests of ops/cuda.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/half.h"
#include "device/cuda/device.h"
#include "ir/builder.h"
#include "ir/fused.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"
#include "tests/emulated/driver.h"
#include "tests/emulated/libraries.h"

namespace meshwright::ops {

class EmulatedGpu {
 public:
  explicit EmulatedGpu(const emulated::EmulatedOptions& options = {}) : driver(options) {
    auto made = device::cuda::CudaDevice::Make(driver, 0, {.name = "cuda:0"});
    if (made) device = *std::move(made);
    libraries.AddTo(toolkit);
  }
  Target target() { return {*device, toolkit}; }

  emulated::EmulatedDriver driver;
  // Tests count what is compiled.
  emulated::EmulatedLibraries libraries{ops::cuda::CodeCacheOptions{.use_disk = false}};
  std::unique_ptr<device::cuda::CudaDevice> device;
  cuda::Toolkit toolkit;
};

inline HostTensor TensorOf(ir::DType dtype, const ir::Dims& dims,
                           const std::vector<float>& values) {
  HostTensor tensor{{dtype, dims}, {}};
  tensor.data.resize(static_cast<size_t>(tensor.type.bytes()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == ir::DType::kF32) {
      reinterpret_cast<float*>(tensor.data.data())[i] = values[i];
    } else {
      reinterpret_cast<uint16_t*>(tensor.data.data())[i] =
          dtype == ir::DType::kBF16 ? FloatToBf16(values[i]) : FloatToF16(values[i]);
    }
  }
  return tensor;
}

inline std::vector<float> FloatsOf(const HostTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.type.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* const halves = reinterpret_cast<const uint16_t*>(tensor.data.data());
    if (tensor.type.dtype == ir::DType::kF32) {
      values[i] = reinterpret_cast<const float*>(tensor.data.data())[i];
    } else {
      values[i] =
          tensor.type.dtype == ir::DType::kBF16 ? Bf16ToFloat(halves[i]) : F16ToFloat(halves[i]);
    }
  }
  return values;
}

inline std::span<float> FloatsIn(HostTensor& tensor) {
  return {reinterpret_cast<float*>(tensor.data.data()),
          static_cast<size_t>(tensor.type.elements())};
}

// Numbers around zero with some spread, all different.
inline std::vector<float> Spread(int64_t count, float scale = 1) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(scale * (static_cast<float>(i * 37 % 101) - 50.0f) / 25.0f);
  }
  return values;
}

// A kernel with its operands and results in the GPU's memory, which tests may run by hand.
inline Result<std::vector<HostTensor>> RunNode(EmulatedGpu& gpu, Kernel& kernel,
                                               const std::vector<HostTensor>& inputs,
                                               const std::vector<ir::TensorType>& outputs,
                                               RunContext context) {
  std::vector<std::unique_ptr<device::Memory>> places;
  const auto place = [&](const void* data, int64_t bytes) -> Result<void*> {
    MW_ASSIGN_OR_RETURN(auto memory, gpu.device->Allocate({ir::MemoryKind::kOther, bytes}));
    if (data != nullptr && bytes > 0) {
      MW_TRY(gpu.device->queue().CopyIn(memory->data(), data, bytes));
    }
    places.push_back(std::move(memory));
    return static_cast<void*>(places.back()->data());
  };
  const StepState state{context.seed, context.step};
  Fault fault;
  context.queue = &gpu.device->queue();
  MW_ASSIGN_OR_RETURN(void* state_place, place(&state, sizeof(state)));
  MW_ASSIGN_OR_RETURN(void* fault_place, place(&fault, sizeof(fault)));
  MW_ASSIGN_OR_RETURN(void* scratch, place(nullptr, kernel.scratch_bytes()));
  context.state = static_cast<const StepState*>(state_place);
  context.fault = static_cast<Fault*>(fault_place);
  context.scratch = static_cast<std::byte*>(scratch);
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  for (const HostTensor& input : inputs) {
    MW_ASSIGN_OR_RETURN(void* data, place(input.data.data(), input.type.bytes()));
    in.push_back({data, &input.type});
  }
  for (const ir::TensorType& type : outputs) {
    MW_ASSIGN_OR_RETURN(void* data, place(nullptr, type.bytes()));
    out.push_back({data, &type});
  }
  MW_TRY(kernel.Run(context, in, out));
  std::vector<HostTensor> results;
  for (const Tensor& tensor : out) {
    HostTensor result{*tensor.type, {}};
    result.data.resize(static_cast<size_t>(tensor.type->bytes()));
    MW_TRY(context.queue->CopyOut(result.data.data(), tensor.data, tensor.type->bytes()));
    results.push_back(std::move(result));
  }
  MW_TRY(context.queue->CopyOut(&fault, fault_place, sizeof(fault)));
  MW_TRY(context.queue->Finish(Deadline::After(60'000)));
  MW_TRY(FaultStatus(fault));
  return results;
}

// The same by the reference kernels.
inline Result<std::vector<HostTensor>> RunOnReference(const KernelSpec& spec,
                                                      std::vector<HostTensor> inputs,
                                                      const RunContext& context) {
  MW_ASSIGN_OR_RETURN(const auto kernel, MakeKernel(Backend::kReference, spec));
  std::vector<HostTensor> results;
  for (const ir::TensorType& type : spec.outputs) {
    results.push_back({type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))});
  }
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  for (HostTensor& tensor : inputs) in.push_back({tensor.data.data(), &tensor.type});
  for (HostTensor& tensor : results) out.push_back({tensor.data.data(), &tensor.type});
  MW_TRY(kernel->Run(context, in, out));
  return results;
}

inline KernelSpec FusedSpec(std::vector<ir::TensorType> operands, ir::FusedBody body) {
  KernelSpec spec;
  spec.op = ir::Op::kFused;
  ir::SetFusedBody(body, spec.attrs);
  spec.inputs = std::move(operands);
  const Result<ir::Graph> graph = ir::ExpandFused(spec.attrs, spec.inputs);
  if (!graph) return spec;
  for (const ir::NamedValue& output : graph->outputs) {
    spec.outputs.push_back(graph->type(output.value));
  }
  return spec;
}

}  // namespace meshwright::ops
