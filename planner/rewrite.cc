#include "planner/rewrite.h"

namespace meshwright::planner {

Result<ir::Graph> RewriteGraph(const ir::Graph& graph, const EmitNode& emit) {
  ir::Builder builder(graph.name);
  std::vector<ValueId> map(graph.values.size());
  for (const ir::Node& node : graph.nodes) {
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(map[static_cast<size_t>(input.value())]);
    std::vector<ir::TensorType> types;
    for (ValueId output : node.outputs) types.push_back(graph.type(output));
    builder.SetLayer(node.layer);
    builder.SetPhase(node.phase);
    const std::vector<ValueId> outputs = emit(builder, node, inputs, types);
    for (size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i) {
      map[static_cast<size_t>(node.outputs[i].value())] = outputs[i];
    }
  }
  for (const ir::NamedValue& output : graph.outputs) {
    builder.SetOutput(output.name, map[static_cast<size_t>(output.value.value())]);
  }
  return builder.Finish();
}

}  // namespace meshwright::planner
