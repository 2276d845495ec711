#include "ir/id_bounds.h"

#include <algorithm>
#include <vector>

namespace meshwright::ir {
namespace {

bool MovesElements(Op op) { return op == Op::kSlice || op == Op::kReshape || op == Op::kTranspose; }

IdBound Labels(const Graph& graph, const Node& node, ValueId scores) {
  const Dims& dims = graph.type(scores).dims;
  return {dims.empty() ? 0 : dims.back(), node.attrs.Int("ignore_index", -100)};
}

// What operand `i` of the node must be as an id; none: it is no id there.
std::optional<IdBound> BoundOf(const Graph& graph, const Node& node, size_t i) {
  switch (node.op) {
    case Op::kEmbedding:
      if (i != 1) return std::nullopt;
      return IdBound{graph.type(node.inputs[0]).dims[0], std::nullopt};
    case Op::kGather:
      if (i != 1) return std::nullopt;
      return IdBound{graph.type(node.inputs[0]).dims[static_cast<size_t>(node.attrs.Int("dim"))],
                     std::nullopt};
    case Op::kCrossEntropy:
    case Op::kPick:
      if (i != 1) return std::nullopt;
      return Labels(graph, node, node.inputs[0]);
    case Op::kHeadLoss:
      if (i != 2) return std::nullopt;
      return IdBound{graph.type(node.inputs[1]).dims[0], node.attrs.Int("ignore_index", -100)};
    default:
      return std::nullopt;
  }
}

IdBound Both(const IdBound& a, const IdBound& b) {
  IdBound both{std::min(a.size, b.size), std::nullopt};
  if (a.ignored == b.ignored) both.ignored = a.ignored;
  return both;
}

}  // namespace

std::map<std::string, IdBound> IdBoundsOf(const Graph& graph) {
  std::map<std::string, IdBound> bounds;
  IdVector<ValueId, std::string> source(
      graph.values.size());  // of values that are an input's elements
  for (const Node& node : graph.nodes) {
    if (node.op == Op::kFeed) {
      const ValueId fed = node.outputs[0];
      if (graph.type(fed).dtype != DType::kI32) continue;
      source[fed] = node.attrs.Str("source");
      continue;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string& from = source[node.inputs[i]];
      if (from.empty()) continue;
      if (MovesElements(node.op)) source[node.outputs[0]] = from;
      const std::optional<IdBound> bound = BoundOf(graph, node, i);
      if (!bound) continue;
      const auto [it, fresh] = bounds.emplace(from, *bound);
      if (!fresh) it->second = Both(it->second, *bound);
    }
  }
  return bounds;
}

}  // namespace meshwright::ir
