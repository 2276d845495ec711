#include <algorithm>

#include "planner/choosing.h"

namespace meshwright::planner {

using ir::FactorRule;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;

namespace {

// Whether blocks of keys go round a ring of the devices that share a row.
bool GoesRound(const Node& node, const NodeStrategy& strategy, const Choosing& choosing) {
  if (node.op != Op::kAttention && node.op != Op::kAttentionGrad) return false;
  if (strategy.operands[0].dims[1].empty() || !strategy.operands[1].dims[1].empty()) return false;
  const ContextAttention way = choosing.layout.context_attention;
  return way == ContextAttention::kRing || way == ContextAttention::kNested;
}

// The axes of tokens that share heads become the last ones of theirs: from tokens to heads is then
// an all-to-all, whatever else splits the heads.
void PutTokensLast(Sharding& sharding) {
  for (mesh::AxisList& axes : sharding.dims) {
    std::stable_partition(axes.begin(), axes.end(), [](const std::string& axis) {
      return RoleOf(axis) != AxisRole::kSequence;
    });
  }
}

void MakeRing(const Node& node, NodeStrategy& strategy, std::vector<Sharding>& results) {
  const mesh::AxisList& axes = strategy.operands[0].dims[1];
  strategy.expansion = Expansion::kRingAttention;
  for (const size_t i : {1, 2}) {
    strategy.operands[i].dims[1] = axes;
    if (node.op != Op::kAttentionGrad) continue;
    for (const std::string& axis : axes) results[i].partial.erase(axis);
    results[i].dims[1] = axes;
  }
}

// Several operands of a sum are partial over the tensor group, and others are not: they are
// reduced together.
bool SumsPartialsFirst(const Node& node, const std::vector<Sharding>& views,
                       const std::vector<Choice>& choices, const Choosing& choosing) {
  const bool passes = std::any_of(choices.begin(), choices.end(), [](const Choice& choice) {
    return choice.axis == kTensor && choice.passes_partial;
  });
  if (node.op != Op::kSum || node.phase == Phase::kUpdate || passes || !choosing.SameStage(node)) {
    return false;
  }
  return std::count_if(views.begin(), views.end(), IsTensorSum) > 1;
}

void KeepPartials(const std::vector<Sharding>& views, NodeStrategy& strategy) {
  strategy.expansion = Expansion::kGroupedSum;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!IsTensorSum(views[i])) continue;
    strategy.operands[i] = WithoutAxis(strategy.operands[i], kTensor);
    strategy.operands[i].partial[kTensor] = ir::PartialKind::kSum;
  }
}

bool SplitsVocabulary(const FactorRule& rule, const std::vector<Choice>& choices) {
  const ir::DimFactors& vocabulary = rule.operands[0].back();
  for (const Choice& choice : choices) {
    if (choice.axis == kTensor && choice.factor && !vocabulary.empty() &&
        *choice.factor == vocabulary[0])
      return true;
  }
  return false;
}

}  // namespace

bool IsGroupedSum(const Node& node, const std::vector<Sharding>& views, const Choosing& choosing) {
  if (node.op != Op::kSum || node.phase != Phase::kUpdate || !choosing.SameStage(node))
    return false;
  if (choosing.graph.type(node.outputs[0]).rank() != 0) return false;
  return std::any_of(views.begin(), views.end(),
                     [](const Sharding& view) { return !view.partial.empty(); });
}

void ExpandSums(const NodeAtHand& at, const std::vector<Choice>& choices, const Choosing& choosing,
                NodeStrategy& strategy) {
  if (SumsPartialsFirst(at.node, at.views, choices, choosing)) KeepPartials(at.views, strategy);
}

void ExpandVocabulary(const NodeAtHand& at, const std::vector<Choice>& choices,
                      NodeStrategy& strategy) {
  if (at.node.op == Op::kCrossEntropy && SplitsVocabulary(at.rule, choices)) {
    strategy.expansion = Expansion::kSplitVocabulary;
  }
}

void ExpandAttention(const Node& node, const Choosing& choosing, NodeStrategy& strategy,
                     std::vector<Sharding>& results) {
  if (GoesRound(node, strategy, choosing)) MakeRing(node, strategy, results);
  if (node.op != Op::kAttention && node.op != Op::kAttentionGrad) return;
  for (Sharding& operand : strategy.operands) PutTokensLast(operand);
  for (Sharding& result : results) PutTokensLast(result);
}

}  // namespace meshwright::planner
