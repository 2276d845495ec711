#include "ir/rewrite.h"

#include <utility>

#include "base/check.h"

namespace meshwright::ir {

Result<Graph> RewriteGraph(const Graph& graph, const EmitNode& emit) {
  Builder builder(graph.name);
  IdVector<ValueId, ValueId> map(graph.values.size());
  for (const Node& node : graph.nodes) {
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(map[input]);
    std::vector<TensorType> types;
    for (ValueId output : node.outputs) types.push_back(graph.type(output));
    builder.SetLayer(node.layer);
    builder.SetPhase(node.phase);
    const std::vector<ValueId> outputs = emit(builder, node, inputs, types);
    for (size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i) {
      map[node.outputs[i]] = outputs[i];
    }
  }
  for (const NamedValue& output : graph.outputs) {
    builder.SetOutput(output.name, map[output.value], output.reduction);
  }
  return builder.Finish();
}

std::vector<ValueId> AddLike(Builder& builder, const Graph& graph, const Node& node,
                             std::vector<ValueId> inputs) {
  std::vector<TensorType> types;
  for (const ValueId output : node.outputs) types.push_back(graph.type(output));
  builder.SetLayer(node.layer);
  builder.SetPhase(node.phase);
  return builder.Add(node.op, std::move(inputs), node.attrs, std::move(types));
}

void CopyNode(Builder& builder, const Graph& graph, const Node& node,
              IdVector<ValueId, ValueId>& map) {
  MW_CHECK(map.size() == graph.values.size()) << map.size() << " places in " << graph.name;
  std::vector<ValueId> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(map[input]);
  const std::vector<ValueId> outputs = AddLike(builder, graph, node, std::move(inputs));
  for (size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i) {
    map[node.outputs[i]] = outputs[i];
  }
}

Result<Graph> DropDeadNodes(const Graph& graph) {
  const auto producer = [&](ValueId id) { return graph.value(id).producer.index(); };
  std::vector<bool> live(graph.nodes.size(), false);
  for (const NamedValue& output : graph.outputs) live[producer(output.value)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    live[i] = live[i] || graph.nodes[i].op == Op::kInput;
    if (!live[i]) continue;
    for (ValueId input : graph.nodes[i].inputs) live[producer(input)] = true;
  }
  size_t next = 0;
  return RewriteGraph(
      graph, [&](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                 const std::vector<TensorType>& types) {
        MW_CHECK(next < live.size()) << "node " << next << " is no node of the graph";
        if (!live[next++]) return std::vector<ValueId>();
        return builder.Add(node.op, inputs, node.attrs, types);
      });
}

}  // namespace meshwright::ir
