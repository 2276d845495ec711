#include "ir/layers.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::ir {
namespace {

size_t ProducerIndex(const Graph& graph, ValueId id) { return graph.value(id).producer.index(); }

bool IsFreeSource(Op op) {
  return op == Op::kFeed || op == Op::kConstant || op == Op::kRandomNormal ||
         op == Op::kLearningRate;
}

}  // namespace

std::vector<bool> FreeNodes(const Graph& graph) {
  std::vector<bool> free(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool follows = !node.inputs.empty() && node.phase != Phase::kUpdate &&
                         std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
                           return free[ProducerIndex(graph, input)];
                         });
    free[i] = IsFreeSource(node.op) || follows;
  }
  return free;
}

std::vector<int> ComputedLayers(const Graph& loss) {
  const std::vector<bool> free = FreeNodes(loss);
  std::vector<int> layers(loss.nodes.size(), -1);
  for (size_t i = 0; i < loss.nodes.size(); ++i) {
    const Node& node = loss.nodes[i];
    if (node.op == Op::kParam || free[i]) continue;
    layers[i] = node.layer;
    if (node.layer >= 0) continue;
    layers[i] = 0;
    for (ValueId input : node.inputs) {
      MW_CHECK(ProducerIndex(loss, input) < i) << "node " << i << " reads what is made later";
      layers[i] = std::max(layers[i], layers[ProducerIndex(loss, input)]);
    }
  }
  return layers;
}

}  // namespace meshwright::ir
