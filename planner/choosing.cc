#include "planner/choosing.h"

#include <algorithm>

#include "planner/later_sums.h"

namespace meshwright::planner {

using ir::FactorIndex;
using ir::FactorKind;
using ir::FactorRule;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;

namespace {

// Which value is (a contribution to) the gradient of which param.
std::map<ValueId, std::string> FindGradients(const ir::Graph& graph) {
  std::map<ValueId, std::string> gradient_of;
  for (const ir::NamedValue& output : graph.outputs) {
    if (!output.name.starts_with("grad/")) continue;
    const std::string param = output.name.substr(5);
    gradient_of[output.value] = param;
    const Node& producer = graph.producer(output.value);
    if (producer.op != Op::kSum) continue;
    for (ValueId input : producer.inputs) gradient_of[input] = param;
  }
  return gradient_of;
}

}  // namespace

bool SplitBy(const mesh::AxisList& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Choosing::Choosing(const ir::Graph& step_graph, const StageAssignment& assignment, const Layout& of,
                   const std::map<std::string, Sharding>& known, int64_t suggest_up_to_degree,
                   const std::set<size_t>& later)
    : graph(step_graph),
      stages(assignment),
      layout(of),
      known_params(known),
      suggest_up_to(suggest_up_to_degree),
      sums_later(later),
      mesh(PlanningMesh(of)),
      split_check(step_graph),
      users(step_graph.Users()),
      gradient_of(FindGradients(step_graph)) {
  result.nodes.resize(graph.nodes.size());
  result.values.resize(graph.values.size());
  result.params = known;
}

std::string Choosing::ParamName(ValueId id) const {
  const Node* producer = &graph.producer(id);
  if (IsWeightCast(graph, *producer)) producer = &graph.producer(producer->inputs[0]);
  return producer->op == Op::kParam ? producer->attrs.Str("name") : "";
}

bool Choosing::Unassigned(ValueId id) const {
  const std::string name = ParamName(id);
  return !name.empty() && !result.params.contains(name);
}

Sharding Choosing::ViewOf(const Node& node, ValueId id) const {
  const std::string name = ParamName(id);
  if (!name.empty()) {
    const auto it = result.params.find(name);
    return it == result.params.end() ? Sharding::Replicated(graph.type(id).rank()) : it->second;
  }
  const Sharding& sharding = result.values[id];
  const bool accumulated =
      node.phase == Phase::kUpdate && graph.producer(id).phase != Phase::kUpdate;
  return accumulated ? WithoutAxis(sharding, kMicro) : sharding;
}

bool Choosing::CanPassPartial(const NodeAtHand& at, const std::string& axis) const {
  const auto& [node, rule, views] = at;
  if (node.op == Op::kEinsum) return false;
  // Sums over devices travel in the narrow type.
  const bool widens = node.op == Op::kCast &&
                      graph.type(node.inputs[0]).bytes() < graph.type(node.outputs[0]).bytes();
  if (widens && axis != kMicro) return false;
  const bool later =
      axis == kTensor && sums_later.contains(static_cast<size_t>(&node - graph.nodes.data()));
  std::set<ir::PartialKind> kinds;
  size_t partial = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    const auto it = views[i].partial.find(axis);
    if (it == views[i].partial.end()) {
      if (later && views[i].UsesAxis(axis)) return false;
      continue;
    }
    if (!rule.linear_operands[i] || (!later && UsedElsewhere(node.inputs[i], axis))) return false;
    ++partial;
    kinds.insert(it->second);
  }
  if (partial == 0 || kinds != std::set<ir::PartialKind>{ir::PartialKind::kSum}) return false;
  const bool additive = IsAdditive(node);
  if (additive && partial != views.size() && !later) return false;
  if (!additive && partial != 1) return false;
  // Microbatches follow each other in every stage alike: a summand of one is that in all stages.
  return axis == kMicro || SameStage(node);
}

// A partial activation with several users is reduced once for all of them.
bool Choosing::UsedElsewhere(ValueId value, const std::string& axis) const {
  return axis == kTensor && users[value].size() > 1;
}

bool Choosing::SameStage(const Node& node) const {
  const auto stages_of = [&](ValueId value) -> const std::vector<int>& {
    return stages.node_stages[graph.value(value).producer.index()];
  };
  const std::vector<int>& own = stages_of(node.outputs[0]);
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    const std::vector<int>& made = stages_of(input);
    return ParamName(input) != "" ||
           std::includes(made.begin(), made.end(), own.begin(), own.end());
  });
}

bool Choosing::CanSplit(const FactorRule& rule, FactorIndex factor, const std::string& axis) const {
  const ir::Factor& f = rule.factors[static_cast<size_t>(factor)];
  const bool whole = f.kind == FactorKind::kWhole ||
                     (f.kind == FactorKind::kSequence && RoleOf(axis) != AxisRole::kSequence);
  return !whole && f.size % mesh.AxisSize(axis) == 0 && !IsMinor(rule, factor);
}

std::optional<FactorIndex> Choosing::FollowOperands(const NodeAtHand& at,
                                                    const std::string& axis) const {
  const auto& [node, rule, views] = at;
  std::map<FactorIndex, int64_t> bytes;
  for (size_t i = 0; i < views.size(); ++i) {
    for (size_t d = 0; d < views[i].dims.size(); ++d) {
      if (!SplitBy(views[i].dims[d], axis) || rule.operands[i][d].empty()) continue;
      bytes[rule.operands[i][d][0]] += graph.type(node.inputs[i]).bytes();
    }
  }
  std::optional<FactorIndex> best;
  for (const auto& [factor, amount] : bytes) {
    if (!CanSplit(rule, factor, axis)) continue;
    if (!best || amount > bytes[*best]) best = factor;
  }
  return best;
}

}  // namespace meshwright::planner
