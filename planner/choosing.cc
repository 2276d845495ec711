#include "planner/choosing.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace meshwright::planner {
namespace {

// Whole beats "does not divide" beats "gathered" beats "fits".
SplitCheck::Answer Worse(const SplitCheck::Answer& a, const SplitCheck::Answer& b) {
  SplitCheck::Answer worse = a.verdict >= b.verdict ? a : b;
  worse.is_vocabulary = a.is_vocabulary || b.is_vocabulary;
  return worse;
}

}  // namespace

bool IsMinor(const ir::FactorRule& rule, ir::FactorIndex factor) {
  MW_CHECK(factor >= 0 && static_cast<size_t>(factor) < rule.factors.size())
      << "factor " << factor << " of " << rule.factors.size();
  const auto in = [&](const ir::TensorFactors& tensor) {
    return std::any_of(tensor.begin(), tensor.end(), [&](const ir::DimFactors& dim) {
      return !dim.empty() && std::find(dim.begin() + 1, dim.end(), factor) != dim.end();
    });
  };
  return std::any_of(rule.operands.begin(), rule.operands.end(), in) ||
         std::any_of(rule.results.begin(), rule.results.end(), in);
}

SplitCheck::Answer SplitCheck::Check(ValueId value, int dim, int64_t parts) {
  MW_CHECK(parts >= 1 && dim >= 0 && dim < graph_.type(value).rank())
      << parts << " parts of dim " << dim << " of " << graph_.type(value).ToString();
  Answer answer;
  const int64_t size = graph_.type(value).dims[static_cast<size_t>(dim)];
  if (size % parts != 0) answer = {kDoesNotDivide, size, false};
  for (NodeId id : users_[value]) {
    const ir::Node& user = graph_.node(id);
    if (user.phase != ir::Phase::kForward) continue;
    for (size_t i = 0; i < user.inputs.size(); ++i) {
      if (user.inputs[i] == value) answer = Worse(answer, CheckUser(user, i, dim, parts));
    }
  }
  return answer;
}

SplitCheck::Answer SplitCheck::CheckUser(const ir::Node& user, size_t operand, int dim,
                                         int64_t parts) {
  const Result<ir::FactorRule> rule = ir::RuleOf(graph_, user);
  if (!rule.has_value() || user.attrs.Has(kRepeatsAttr)) return {kNeededWhole, 0, false};
  const ir::DimFactors& factors = rule->operands[operand][static_cast<size_t>(dim)];
  if (factors.empty()) return {kFits, 0, false};
  const ir::Factor& factor = rule->factors[static_cast<size_t>(factors[0])];
  if (ir::NeededWhole(factor.kind) || factor.kind == ir::FactorKind::kSequence)
    return {kNeededWhole, 0, false};
  Answer answer;
  if (factor.size % parts != 0) answer = {kDoesNotDivide, factor.size, false};
  if (factor.kind == ir::FactorKind::kReduced) {
    const bool loss = user.op == ir::Op::kCrossEntropy || user.op == ir::Op::kLogSumExp ||
                      user.op == ir::Op::kPick;
    answer.is_vocabulary = loss;
    return answer;
  }
  if (IsMinor(*rule, factors[0])) return Worse(answer, {kGathered, 0, false});
  for (size_t r = 0; r < rule->results.size(); ++r) {
    for (size_t d = 0; d < rule->results[r].size(); ++d) {
      const ir::DimFactors& result = rule->results[r][d];
      if (result.empty() || result[0] != factors[0]) continue;
      answer = Worse(answer, Check(user.outputs[r], static_cast<int>(d), parts));
    }
  }
  return answer;
}

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
  // A table's gradient is linear in that of the rows that were looked up. Rows of the batch may be
  // added up behind it, as for a table of distances, which all rows read; devices that share a row
  // add up before it, since a table may be larger than a row.
  const bool of_table = node.op == Op::kEmbeddingGrad && SplitsRows(RoleOf(axis));
  std::set<ir::PartialKind> kinds;
  size_t partial = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    const auto it = views[i].partial.find(axis);
    if (it == views[i].partial.end()) {
      if (later && views[i].UsesAxis(axis)) return false;
      continue;
    }
    const bool linear = rule.linear_operands[i] || (of_table && i == 1);
    if (!linear || (!later && UsedElsewhere(node.inputs[i], axis))) return false;
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
  const bool whole = ir::NeededWhole(f.kind) ||
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

namespace {

struct LaterSums {
  const ir::Graph& graph;
  const StageAssignment& stages;
  const Strategies& strategies;
  const IdVector<ValueId, std::vector<NodeId>> users;

  // Whether `reader` can get the value as a partial sum that nobody else needs whole; `marks`: the
  // adds that must pass one on for that.
  bool MayBeSum(size_t reader, ValueId value, std::set<size_t>& marks) const {
    const size_t producer = graph.value(value).producer.index();
    const Node& node = graph.nodes[producer];
    const bool only_here = users[value].size() == 1 && node.phase == graph.nodes[reader].phase &&
                           stages.node_stages[producer] == stages.node_stages[reader];
    if (!only_here) return false;
    if (IsTensorSum(strategies.values[value])) return true;
    if (!IsAdditive(node)) return false;
    std::set<size_t> own = {producer};
    bool any = false;
    for (const ValueId input : node.inputs) {
      const Sharding& made = strategies.values[input];
      if (made.UsesAxis(kTensor) && !made.partial.contains(kTensor)) return false;
      any = MayBeSum(producer, input, own) || any;
    }
    if (any) marks.insert(own.begin(), own.end());
    return any;
  }
};

}  // namespace

bool IsTensorSum(const Sharding& view) {
  const auto it = view.partial.find(kTensor);
  return it != view.partial.end() && it->second == ir::PartialKind::kSum;
}

bool IsAdditive(const Node& node) {
  return node.op == Op::kAdd || node.op == Op::kSub || node.op == Op::kSum;
}

std::set<size_t> AddsOfLaterSums(const ir::Graph& graph, const StageAssignment& stages,
                                 const Strategies& strategies) {
  const LaterSums sums{graph, stages, strategies, graph.Users()};
  std::set<size_t> marked;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!IsAdditive(node) || node.phase == Phase::kUpdate) continue;
    std::set<size_t> marks;
    const auto count = std::count_if(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId input) { return sums.MayBeSum(i, input, marks); });
    if (count > 1) marked.insert(marks.begin(), marks.end());
  }
  return marked;
}

}  // namespace meshwright::planner
