#include "bench/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/schema.h"

namespace meshwright::bench {

std::string KindOf(const ir::Graph& graph, const ir::Node& node) {
  std::string kind(ir::OpName(node.op));
  if (node.op == ir::Op::kEinsum) kind += " " + node.attrs.Str("equation");
  for (const std::string& step : node.attrs.Strs("body"))
    kind += " " + step.substr(0, step.find('('));
  if (!node.outputs.empty()) kind += " " + graph.type(node.outputs[0]).ToString();
  return kind;
}

void Profile::OnNode(const ir::Graph& graph, NodeId id, double seconds) {
  OneNode& one = nodes_[{&graph, id}];
  NodeTotals& totals = one.totals;
  const ir::Node& node = graph.node(id);
  if (totals.calls == 0) {
    one.kind = KindOf(graph, node);
    totals.least_s = seconds;
    if (costs_ != nullptr && !planner::IsCollective(node.op)) {
      totals.forecast_s = costs_->NodeSeconds(graph, node, 0);
    }
  }
  const ir::OpCost cost = ir::CostOf(graph, node);
  ++totals.calls;
  totals.seconds += seconds;
  totals.flops += cost.flops;
  totals.bytes += cost.bytes;
  totals.least_s = std::min(totals.least_s, seconds);
}

std::map<std::string, NodeTotals> Profile::Totals() const {
  std::map<std::string, NodeTotals> sums;
  for (const auto& [key, one] : nodes_) {
    NodeTotals& sum = sums[one.kind];
    const auto calls = static_cast<double>(one.totals.calls);
    sum.calls += one.totals.calls;
    sum.seconds += one.totals.seconds;
    sum.flops += one.totals.flops;
    sum.bytes += one.totals.bytes;
    sum.least_s += calls * one.totals.least_s;
    sum.forecast_s += calls * one.totals.forecast_s;
  }
  return sums;
}

}  // namespace meshwright::bench
