#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "ops/kernel.h"

namespace meshwright::ops {
namespace {

Status CheckBinding(const ir::Node& node, const ir::TensorType& want, const HostTensor& bound) {
  if (bound.type == want && static_cast<int64_t>(bound.data.size()) == want.bytes()) return {};
  return InvalidArgument(
      fmt::format("binding of {} '{}': expected {} ({} bytes), got {} ({} bytes)",
                  ir::OpName(node.op), node.attrs.Str("name"), want.ToString(), want.bytes(),
                  bound.type.ToString(), bound.data.size()));
}

Status RunOnHost(Kernel& kernel, const ir::Node& node, const RunContext& context,
                 IdVector<ValueId, HostTensor>& values) {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (ValueId id : node.inputs) {
    HostTensor& value = values[id];
    inputs.push_back({value.data.data(), &value.type});
  }
  for (ValueId id : node.outputs) {
    HostTensor& value = values[id];
    outputs.push_back({value.data.data(), &value.type});
  }
  return kernel.Run(context, inputs, outputs);
}

// One node on a GPU: operands there, results back.
class NodeOnDevice {
 public:
  explicit NodeOnDevice(device::Device& device) : device_(device) {}

  Status Run(Kernel& kernel, const ir::Node& node, const RunContext& given,
             IdVector<ValueId, HostTensor>& values) {
    RunContext context = given;
    const StepState state{given.seed, given.step};
    Fault fault;
    context.queue = &device_.queue();
    MW_ASSIGN_OR_RETURN(void* state_place, Place(&state, sizeof(state)));
    MW_ASSIGN_OR_RETURN(void* fault_place, Place(&fault, sizeof(fault)));
    MW_ASSIGN_OR_RETURN(void* scratch, Place(nullptr, kernel.scratch_bytes()));
    context.state = static_cast<const StepState*>(state_place);
    context.fault = static_cast<Fault*>(fault_place);
    context.scratch = static_cast<std::byte*>(scratch);
    MW_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, PlaceAll(node.inputs, values));
    MW_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, PlaceAll(node.outputs, values));
    MW_TRY(kernel.Prepare(context));
    MW_TRY(kernel.Run(context, inputs, outputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      HostTensor& value = values[node.outputs[i]];
      MW_TRY(context.queue->CopyOut(value.data.data(), outputs[i].data, value.type.bytes()));
    }
    MW_TRY(context.queue->CopyOut(&fault, fault_place, sizeof(fault)));
    MW_TRY(context.queue->Finish(Deadline::After(kTimeoutMs)));
    return FaultStatus(fault);
  }

 private:
  static constexpr int64_t kTimeoutMs = 60'000;

  Result<void*> Place(const void* data, int64_t bytes) {
    MW_ASSIGN_OR_RETURN(auto memory, device_.Allocate({ir::MemoryKind::kOther, bytes}));
    if (data != nullptr) MW_TRY(device_.queue().CopyIn(memory->data(), data, bytes));
    places_.push_back(std::move(memory));
    return static_cast<void*>(places_.back()->data());
  }

  Result<std::vector<Tensor>> PlaceAll(const std::vector<ValueId>& ids,
                                       const IdVector<ValueId, HostTensor>& values) {
    std::vector<Tensor> tensors;
    for (ValueId id : ids) {
      const HostTensor& value = values[id];
      MW_ASSIGN_OR_RETURN(void* place, Place(value.data.data(), value.type.bytes()));
      tensors.push_back({place, &value.type});
    }
    return tensors;
  }

  device::Device& device_;
  std::vector<std::unique_ptr<device::Memory>> places_;
};

Status RunNode(const Target& target, const ir::Graph& graph, const ir::Node& node,
               const RunContext& context, IdVector<ValueId, HostTensor>& values) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                      MakeKernel(target, graph, node, DeviceCoords{}));
  for (ValueId id : node.outputs) {
    HostTensor& value = values[id];
    value.data.resize(static_cast<size_t>(value.type.bytes()));
  }
  if (target.backend != Backend::kCuda) return RunOnHost(*kernel, node, context, values);
  return NodeOnDevice(*target.device).Run(*kernel, node, context, values);
}

}  // namespace

Result<std::vector<HostTensor>> Evaluate(
    const Target& target, const ir::Graph& graph,
    const std::function<Result<HostTensor>(const ir::Node&)>& bindings, const RunContext& context) {
  IdVector<ValueId, HostTensor> values(graph.values.size());
  for (const ir::Node& node : graph.nodes) {
    for (const ValueId id : node.outputs) values[id].type = graph.type(id);
  }
  for (const ir::Node& node : graph.nodes) {
    if (node.op == ir::Op::kInput || node.op == ir::Op::kParam) {
      HostTensor& value = values[node.outputs[0]];
      MW_ASSIGN_OR_RETURN(HostTensor bound, bindings(node));
      MW_TRY(CheckBinding(node, value.type, bound));
      value = std::move(bound);
      continue;
    }
    MW_TRY(RunNode(target, graph, node, context, values));
  }
  std::vector<HostTensor> results;
  for (const ir::NamedValue& output : graph.outputs) {
    results.push_back(values[output.value]);
  }
  return results;
}

}  // namespace meshwright::ops
