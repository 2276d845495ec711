#include "planner/early_scatters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "planner/cost_model.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;

using MadeTimes = std::map<TensorIndex, int64_t>;  // in nodes, as a microbatch passes its stage

// Nodes that come first: inputs in their order, then collectives of inputs alone as those are made.
std::vector<size_t> EarlyNodes(const Piece& piece, const MadeTimes& made) {
  const Graph& graph = *piece.graph;
  std::vector<size_t> inputs;
  std::vector<std::pair<int64_t, size_t>> collectives;
  std::map<ValueId, int64_t> made_of;  // values of inputs
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op == ir::Op::kInput) {
      MW_CHECK(inputs.size() < piece.inputs.size()) << graph.name << " has more inputs than slots";
      const auto at = made.find(piece.inputs[inputs.size()]);
      made_of[node.outputs[0]] = at == made.end() ? 0 : at->second;
      inputs.push_back(n);
      continue;
    }
    if (!IsCollective(node.op)) continue;
    int64_t last = 0;
    bool direct = true;
    for (const ValueId input : node.inputs) {
      const auto at = made_of.find(input);
      direct = direct && at != made_of.end();
      if (direct) last = std::max(last, at->second);
    }
    if (direct) collectives.emplace_back(last, n);
  }
  std::stable_sort(collectives.begin(), collectives.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [last, n] : collectives) inputs.push_back(n);
  return inputs;
}

// The graph with these nodes first and the others in their order; scattered: the results of those
// that are reduce-scatters.
Result<Graph> WithEarlyNodes(const Graph& graph, const std::vector<size_t>& first,
                             std::vector<ValueId>& scattered) {
  std::vector<size_t> order = first;
  const std::set<size_t> early(first.begin(), first.end());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!early.contains(n)) order.push_back(n);
  }
  ir::Builder builder(graph.name);
  IdVector<ValueId, ValueId> renamed(graph.values.size());
  for (const size_t n : order) {
    const Node& node = graph.nodes[n];
    ir::CopyNode(builder, graph, node, renamed);
    const bool scatters = node.op == ir::Op::kReduceScatter && early.contains(n);
    if (scatters) scattered.push_back(renamed[node.outputs[0]]);
  }
  for (const ir::NamedValue& output : graph.outputs) {
    builder.SetOutput(output.name, renamed[output.value]);
  }
  return builder.Finish();
}

}  // namespace

Status ScatterEarly(Partition& partition) {
  MadeTimes made;
  int64_t nodes = 0;
  for (Piece& piece : partition.pieces) {
    if (piece.key.phase == ir::Phase::kUpdate) {
      std::vector<ValueId> scattered;
      MW_ASSIGN_OR_RETURN(Graph graph,
                          WithEarlyNodes(*piece.graph, EarlyNodes(piece, made), scattered));
      for (const ValueId value : scattered) {
        const bool known = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                       [&](const auto& output) { return output.value == value; });
        if (known) continue;
        StageTensor tensor;
        tensor.stage = piece.key.stage;
        tensor.role = TensorRole::kStep;
        tensor.kind = ir::MemoryKind::kGradients;
        tensor.name = fmt::format("{}%{}", graph.name, value.value());
        tensor.local_type = graph.type(value);
        tensor.global_type = tensor.local_type;
        tensor.sharding = mesh::Sharding::Replicated(tensor.local_type.rank());
        graph.outputs.push_back({tensor.name, value});
        piece.outputs.push_back(partition.tensors.Add(std::move(tensor)));
      }
      piece.graph = std::make_shared<const Graph>(std::move(graph));
    }
    const Graph& graph = *piece.graph;
    MW_CHECK(graph.outputs.size() == piece.outputs.size()) << graph.name << " binds other outputs";
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      made[piece.outputs[o]] = nodes + graph.value(graph.outputs[o].value).producer.value();
    }
    nodes += static_cast<int64_t>(graph.nodes.size());
  }
  return OkStatus();
}

}  // namespace meshwright::planner
