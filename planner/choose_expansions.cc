#include <algorithm>

#include "planner/choosing.h"

namespace meshwright::planner {

using ir::FactorRule;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;

namespace {

// Whether blocks of keys go round a ring of the devices that share a row. They take less memory
// than all keys, and more messages.
bool GoesRound(const Node& node, const NodeStrategy& strategy, const Choosing& choosing) {
  constexpr int64_t kFewBytes = int64_t{16} << 20;
  if (node.op != Op::kAttention && node.op != Op::kAttentionGrad) return false;
  const Sharding& keys = strategy.operands[1];
  if (strategy.operands[0].dims[1].empty() || !keys.dims[1].empty()) return false;
  if (choosing.layout.context_attention != ContextAttention::kAuto) {
    return choosing.layout.context_attention == ContextAttention::kRing;
  }
  const ir::TensorType& type = choosing.graph.type(node.inputs[1]);
  const ir::TensorType local{type.dtype, mesh::LocalDims(type.dims, keys, choosing.mesh)};
  return 2 * local.bytes() > kFewBytes;
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

bool IsTensorSum(const Sharding& view) {
  const auto it = view.partial.find(kTensor);
  return it != view.partial.end() && it->second == ir::PartialKind::kSum;
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
}

}  // namespace meshwright::planner
