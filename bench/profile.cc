#include "bench/profile.h"

#include <fmt/format.h>

#include "ir/schema.h"

namespace meshwright::bench {
namespace {

std::string KindOf(const ir::Graph& graph, const ir::Node& node) {
  std::string kind(ir::OpName(node.op));
  if (node.op == ir::Op::kEinsum) kind += " " + node.attrs.Str("equation");
  for (const std::string& step : node.attrs.Strs("body"))
    kind += " " + step.substr(0, step.find('('));
  if (!node.outputs.empty()) kind += " " + graph.type(node.outputs[0]).ToString();
  return kind;
}

}  // namespace

void Profile::OnNode(const ir::Graph& graph, NodeId id, double seconds) {
  const ir::Node& node = graph.node(id);
  const ir::OpCost cost = ir::CostOf(graph, node);
  NodeTotals& totals = totals_[KindOf(graph, node)];
  ++totals.calls;
  totals.seconds += seconds;
  totals.flops += cost.flops;
  totals.bytes += cost.bytes;
}

}  // namespace meshwright::bench
