#include <fmt/format.h>

#include <cstddef>

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

Status RunNode(Backend backend, const ir::Graph& graph, const ir::Node& node,
               const RunContext& context, std::vector<HostTensor>& values) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                      MakeKernel(backend, graph, node, DeviceCoords{}));
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (ValueId id : node.inputs) {
    HostTensor& value = values[static_cast<size_t>(id.value())];
    inputs.push_back({value.data.data(), &value.type});
  }
  for (ValueId id : node.outputs) {
    HostTensor& value = values[static_cast<size_t>(id.value())];
    value.data.resize(static_cast<size_t>(value.type.bytes()));
    outputs.push_back({value.data.data(), &value.type});
  }
  return kernel->Run(context, inputs, outputs);
}

}  // namespace

Result<std::vector<HostTensor>> Evaluate(
    Backend backend, const ir::Graph& graph,
    const std::function<Result<HostTensor>(const ir::Node&)>& bindings, const RunContext& context) {
  std::vector<HostTensor> values(graph.values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i].type = graph.values[i].type;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == ir::Op::kInput || node.op == ir::Op::kParam) {
      HostTensor& value = values[static_cast<size_t>(node.outputs[0].value())];
      MW_ASSIGN_OR_RETURN(HostTensor bound, bindings(node));
      MW_TRY(CheckBinding(node, value.type, bound));
      value = std::move(bound);
      continue;
    }
    MW_TRY(RunNode(backend, graph, node, context, values));
  }
  std::vector<HostTensor> results;
  for (const ir::NamedValue& output : graph.outputs) {
    results.push_back(values[static_cast<size_t>(output.value.value())]);
  }
  return results;
}

}  // namespace meshwright::ops
