#include "tests/conformance/ops/targets.h"

#include <cstring>

#include "tests/emulated/gpu.h"
#include "tests/machine_gpu.h"

namespace meshwright::ops {
namespace {

constexpr int64_t kTimeoutMs = 60'000;

// Memory of a GPU that is given back at the end of a run.
class Places {
 public:
  explicit Places(device::Device& device) : device_(device) {}

  Result<std::byte*> Put(const void* data, int64_t bytes) {
    MW_ASSIGN_OR_RETURN(auto memory, device_.Allocate({ir::MemoryKind::kOther, bytes}));
    if (data != nullptr) MW_TRY(device_.queue().CopyIn(memory->data(), data, bytes));
    places_.push_back(std::move(memory));
    return places_.back()->data();
  }

 private:
  device::Device& device_;
  std::vector<std::unique_ptr<device::Memory>> places_;
};

Status RunOnGpu(device::Device& device, Kernel& kernel, RunContext context,
                std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs,
                const std::vector<int>& in_place) {
  Places places(device);
  device::Queue& queue = device.queue();
  const StepState state{context.seed, context.step};
  Fault fault;
  context.queue = &queue;
  MW_ASSIGN_OR_RETURN(std::byte* const state_place, places.Put(&state, sizeof(state)));
  MW_ASSIGN_OR_RETURN(std::byte* const fault_place, places.Put(&fault, sizeof(fault)));
  MW_ASSIGN_OR_RETURN(context.scratch, places.Put(nullptr, kernel.scratch_bytes()));
  context.state = reinterpret_cast<const StepState*>(state_place);
  context.fault = reinterpret_cast<Fault*>(fault_place);
  std::vector<Tensor> in;
  for (HostTensor& tensor : inputs) {
    MW_ASSIGN_OR_RETURN(std::byte* const place,
                        places.Put(tensor.data.data(), tensor.type.bytes()));
    in.push_back({place, &tensor.type});
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool replaces = i < in_place.size() && in_place[i] >= 0;
    MW_ASSIGN_OR_RETURN(std::byte* const own, places.Put(nullptr, outputs[i].type.bytes()));
    out.push_back({replaces ? in[static_cast<size_t>(in_place[i])].data : own, &outputs[i].type});
  }
  MW_TRY(kernel.Prepare(context));
  MW_TRY(kernel.Run(context, in, out));
  for (size_t i = 0; i < outputs.size(); ++i) {
    MW_TRY(queue.CopyOut(outputs[i].data.data(), out[i].data, outputs[i].type.bytes()));
  }
  MW_TRY(queue.CopyOut(&fault, fault_place, sizeof(fault)));
  MW_TRY(queue.Finish(Deadline::After(kTimeoutMs)));
  return FaultStatus(fault);
}

}  // namespace

Target TestedGpu() {
  return machine::OnMachineGpus() ? machine::FirstMachineGpu() : emulated::SharedGpu().target();
}

std::vector<Target> AllTargets() {
#if defined(MW_THREAD_SANITIZER)
  // One thread does what an emulated GPU computes.
  return {Backend::kReference, Backend::kCpu};
#else
  return {Backend::kReference, Backend::kCpu, TestedGpu()};
#endif
}

Status RunKernel(const Target& target, Kernel& kernel, RunContext context,
                 std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs,
                 const std::vector<int>& in_place) {
  if (target.backend == Backend::kCuda) {
    return RunOnGpu(*target.device, kernel, context, inputs, outputs, in_place);
  }
  std::vector<Tensor> in;
  for (HostTensor& tensor : inputs) in.push_back({tensor.data.data(), &tensor.type});
  std::vector<Tensor> out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool replaces = i < in_place.size() && in_place[i] >= 0;
    HostTensor& place = replaces ? inputs[static_cast<size_t>(in_place[i])] : outputs[i];
    out.push_back({place.data.data(), &outputs[i].type});
  }
  MW_TRY(kernel.Prepare(context));
  MW_TRY(kernel.Run(context, in, out));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (out[i].data == outputs[i].data.data()) continue;
    std::memcpy(outputs[i].data.data(), out[i].data, outputs[i].data.size());
  }
  return {};
}

}  // namespace meshwright::ops
