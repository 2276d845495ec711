#include "planner/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/averages.h"
#include "planner/choosing.h"

namespace meshwright::planner {
namespace {

using ir::FactorRule;
using ir::Graph;
using ir::Node;
using ir::Op;
using mesh::Sharding;

Result<Choice> Choose(const NodeAtHand& at, const std::string& axis, Choosing& choosing) {
  switch (RoleOf(axis)) {
    case AxisRole::kRows:
      return ChooseRows(at, axis, choosing);
    case AxisRole::kExperts:
      return ChooseExperts(at, axis, choosing);
    case AxisRole::kSequence:
      return ChooseSequence(at, axis, choosing);
    case AxisRole::kModel:
      return ChooseTensor(at, choosing);
  }
  return Fail(Internal("an axis of no role"));
}

Sharding FromChoices(const ir::TensorFactors& factors, const std::vector<Choice>& choices) {
  Sharding sharding = Sharding::Replicated(static_cast<int>(factors.size()));
  for (const Choice& choice : choices) {
    for (size_t d = 0; choice.factor && d < factors.size(); ++d) {
      if (!factors[d].empty() && factors[d][0] == *choice.factor)
        sharding.dims[d].push_back(choice.axis);
    }
  }
  return sharding;
}

std::vector<Sharding> OperandShardings(const NodeAtHand& at, const std::vector<Choice>& choices) {
  const auto& [node, rule, views] = at;
  std::vector<Sharding> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Sharding sharding = FromChoices(rule.operands[i], choices);
    for (const Choice& choice : choices) {
      const auto it = views[i].partial.find(choice.axis);
      if (choice.passes_partial && it != views[i].partial.end())
        sharding.partial[choice.axis] = it->second;
      // What is whole is added once: by the first device along the axis.
      if (choice.passes_partial && choice.axis == kTensor && IsAdditive(node))
        sharding.partial[choice.axis] = ir::PartialKind::kSum;
    }
    operands.push_back(std::move(sharding));
  }
  return operands;
}

std::vector<Sharding> ResultShardings(const NodeAtHand& at, const std::vector<Choice>& choices,
                                      Expansion expansion) {
  const auto& [node, rule, views] = at;
  std::vector<Sharding> results;
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    Sharding sharding = FromChoices(rule.results[r], choices);
    for (const Choice& choice : choices) {
      // It is reduced inside.
      if (expansion == Expansion::kSplitVocabulary && choice.axis == kTensor) continue;
      if (choice.passes_partial) sharding.partial[choice.axis] = ir::PartialKind::kSum;
      if (choice.factor && !sharding.UsesAxis(choice.axis))
        sharding.partial[choice.axis] = rule.result_partial[r];
    }
    results.push_back(std::move(sharding));
  }
  return results;
}

Status AssignParams(const Node& node, const NodeStrategy& strategy, Choosing& choosing) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!choosing.Unassigned(node.inputs[i])) continue;
    if (strategy.operands[i].UsesAxis(kMicro)) {
      return InvalidArgument(fmt::format(
          "param {} {} has a value per row of the batch; rows come in {} microbatches: use "
          "microbatches=1 or a param without the batch dim",
          choosing.ParamName(node.inputs[i]), choosing.graph.type(node.inputs[i]).ToString(),
          choosing.layout.microbatches));
    }
    Sharding& sharding = choosing.result.params[choosing.ParamName(node.inputs[i])];
    sharding = strategy.operands[i];
    sharding.partial.clear();
  }
  return OkStatus();
}

Status SetResults(const Node& node, NodeStrategy& strategy, std::vector<Sharding> results,
                  Choosing& choosing) {
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    const Status valid =
        mesh::ValidateSharding(choosing.graph.type(node.outputs[r]), results[r], choosing.mesh);
    if (!valid.ok()) return valid;
    choosing.result.values[node.outputs[r]] = results[r];
  }
  strategy.results = std::move(results);
  return OkStatus();
}

// A weight that nothing but its cast reads is sharded by the readers of the cast.
Status SettleWeightCast(size_t index, Choosing& choosing) {
  const Graph& graph = choosing.graph;
  Strategies& result = choosing.result;
  const Node& node = graph.nodes[index];
  if (!IsWeightCast(graph, node)) return OkStatus();
  const int rank = graph.type(node.outputs[0]).rank();
  const Sharding sharding =
      result.params.try_emplace(choosing.ParamName(node.inputs[0]), Sharding::Replicated(rank))
          .first->second;
  result.nodes[index].operands = {sharding};
  return SetResults(node, result.nodes[index], {sharding}, choosing);
}

// Where experts lie on hosts, and devices within one, both axes may split one dim. Which of them
// does first is what came: rows are split by the devices of a host first (OfFeed), so that what
// hosts send each other are blocks of what each device has, groups of experts by host, since a host
// has neighbouring ones.
void OrderExpertAxes(const NodeAtHand& at, std::vector<Choice>& choices) {
  const auto of = [&](const char* axis) {
    return std::find_if(choices.begin(), choices.end(),
                        [&](const Choice& choice) { return choice.axis == axis; });
  };
  const auto hosts = of(kExpert);
  const auto lanes = of(kExpertLanes);
  if (hosts == choices.end() || lanes == choices.end()) return;
  MW_CHECK(hosts < lanes) << "axes of experts are out of order";
  if (!hosts->factor || hosts->factor != lanes->factor) return;
  for (size_t i = 0; i < at.views.size(); ++i) {
    for (size_t d = 0; d < at.views[i].dims.size(); ++d) {
      const ir::DimFactors& factors = at.rule.operands[i][d];
      if (factors.empty() || factors[0] != *hosts->factor) continue;
      for (const std::string& axis : at.views[i].dims[d]) {
        if (axis == kExpert) return;
        if (axis == kExpertLanes) return std::iter_swap(hosts, lanes);
      }
    }
  }
  std::iter_swap(hosts, lanes);
}

// Rows of the batch are split by all axes of rows.
Sharding OfFeed(const Node& node, const Choosing& choosing) {
  const ir::TensorType& type = choosing.graph.type(node.outputs[0]);
  Sharding sharding = Sharding::Replicated(type.rank());
  int64_t parts = 1;
  std::vector<ir::MeshAxis> axes = choosing.mesh.axes;
  for (size_t i = 0; i + 1 < axes.size(); ++i) {
    if (axes[i].name == kExpert && axes[i + 1].name == kExpertLanes)
      std::swap(axes[i], axes[i + 1]);
  }
  for (const ir::MeshAxis& axis : axes) {
    if (!SplitsRows(RoleOf(axis.name)) || !ir::IsBatchFeed(node)) continue;
    // A program of few rows computes them on every replica.
    if (type.dims[0] % (parts * axis.size) != 0) continue;
    parts *= axis.size;
    sharding.dims[0].push_back(axis.name);
  }
  return sharding;
}

Status Visit(size_t index, Choosing& choosing) {
  const Graph& graph = choosing.graph;
  const Node& node = graph.nodes[index];
  NodeStrategy& strategy = choosing.result.nodes[index];
  if (node.op == Op::kParam) {
    // A mean lies as its param does.
    const auto of = choosing.result.params.find(node.attrs.Str(ir::kAverageOfAttr));
    if (of != choosing.result.params.end()) {
      choosing.result.params.try_emplace(node.attrs.Str("name"), of->second);
    }
    return OkStatus();
  }
  if (IsWeightCast(graph, node)) return OkStatus();
  if (node.op == Op::kFeed) {
    return SetResults(node, strategy, {OfFeed(node, choosing)}, choosing);
  }
  if (node.inputs.empty()) {
    const int rank = graph.type(node.outputs[0]).rank();
    return SetResults(node, strategy, {Sharding::Replicated(rank)}, choosing);
  }
  std::vector<Sharding> views;
  for (ValueId input : node.inputs) views.push_back(choosing.ViewOf(node, input));
  if (IsGroupedSum(node, views, choosing)) {
    strategy.operands = std::move(views);
    strategy.expansion = Expansion::kGroupedSum;
    return SetResults(node, strategy, {Sharding::Replicated(0)}, choosing);
  }
  MW_ASSIGN_OR_RETURN(const FactorRule rule, ir::RuleOf(graph, node));
  const NodeAtHand at{node, rule, views};
  std::vector<Choice> choices;
  for (const ir::MeshAxis& axis : choosing.mesh.axes) {
    MW_ASSIGN_OR_RETURN(Choice chosen, Choose(at, axis.name, choosing));
    choices.push_back(std::move(chosen));
  }
  OrderExpertAxes(at, choices);
  strategy.operands = OperandShardings(at, choices);
  ExpandSums(at, choices, choosing, strategy);
  MW_TRY(AssignParams(node, strategy, choosing));
  ExpandVocabulary(at, choices, strategy);
  std::vector<Sharding> results = ResultShardings(at, choices, strategy.expansion);
  ExpandAttention(node, choosing, strategy, results);
  return SetResults(node, strategy, std::move(results), choosing);
}

// Layers have such weights alike: one note says so of all.
void NoteUnsplit(Choosing& choosing) {
  if (choosing.unsplit.empty()) return;
  const std::set<std::string> names(choosing.unsplit.begin(), choosing.unsplit.end());
  const bool one = names.size() == 1;
  choosing.result.notes.push_back(
      fmt::format("{} replicated over tensor={}: no factor of {} can be split",
                  one ? choosing.unsplit[0] + " is"
                      : fmt::format("{} and {} more are", choosing.unsplit[0], names.size() - 1),
                  choosing.layout.tensor(), one ? "it" : "them"));
}

}  // namespace

bool IsWeightCast(const Graph& graph, const Node& node) {
  return node.op == Op::kCast && node.phase == ir::Phase::kForward &&
         graph.producer(node.inputs[0]).op == Op::kParam;
}

Result<Strategies> StrategiesByRules(Choosing& choosing) {
  const Graph& graph = choosing.graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Status status = Visit(i, choosing);
    if (!status.ok()) {
      return Fail(
          status.WithContext(fmt::format("{} (node {})", ir::OpName(graph.nodes[i].op), i)));
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) MW_TRY(SettleWeightCast(i, choosing));
  NoteUnsplit(choosing);
  return std::move(choosing.result);
}

Result<Strategies> ChooseStrategies(const Graph& step_graph, const StageAssignment& stages,
                                    const Layout& layout,
                                    const std::map<std::string, Sharding>& known_params,
                                    int64_t max_tensor) {
  if (TensorAxes(layout).size() > 1) {
    return Fail(InvalidArgument(
        fmt::format("the rules split one tensor axis, not a grid of {}; use shardings = \"search\"",
                    fmt::join(layout.tensor_axes, "x"))));
  }
  std::set<size_t> sums_later;
  Choosing choosing(step_graph, stages, layout, known_params, max_tensor, sums_later);
  MW_ASSIGN_OR_RETURN(Strategies strategies, StrategiesByRules(choosing));
  if (layout.tensor() == 1) return strategies;
  sums_later = AddsOfLaterSums(step_graph, stages, strategies);
  if (sums_later.empty()) return strategies;
  Choosing again(step_graph, stages, layout, known_params, max_tensor, sums_later);
  return StrategiesByRules(again);
}

}  // namespace meshwright::planner
