#include <fmt/format.h>

#include "planner/choosing.h"
#include "planner/resolve_layout.h"

namespace meshwright::planner {

using ir::FactorIndex;
using ir::Op;

namespace {

// What is summed over the blocks of a row and is one of its tensors becomes split along it again.
std::optional<FactorIndex> TokensOfSums(const NodeAtHand& at, const std::string& axis,
                                        const Choosing& choosing) {
  const auto& [node, rule, views] = at;
  for (size_t i = 0; i < views.size(); ++i) {
    const bool tokens = views[i].dims.size() >= 3 &&
                        choosing.graph.type(node.inputs[i]).dims[1] == choosing.tokens &&
                        !choosing.gradient_of.contains(node.inputs[i]);
    if (!tokens || !views[i].partial.contains(axis) || rule.operands[i][1].empty()) continue;
    const FactorIndex factor = rule.operands[i][1][0];
    if (choosing.CanSplit(rule, factor, axis)) return factor;
  }
  return std::nullopt;
}

constexpr size_t kRank = 4;  // of q, k, v, o and their gradients
constexpr size_t kTokenDim = 1;
constexpr size_t kHeadsDim = 2;

bool IsAttention(const ir::Node& node) {
  return node.op == Op::kAttention || node.op == Op::kAttentionGrad;
}

bool SharesHeads(const Layout& layout, const std::string& axis) {
  if (layout.context_attention == ContextAttention::kNested) return axis == kContextHeads;
  return layout.context_attention == ContextAttention::kUlysses;
}

// Heads of keys, where devices share heads in the place of tokens within attention.
std::optional<FactorIndex> HeadsToShare(const NodeAtHand& at, const std::string& axis,
                                        const Choosing& choosing) {
  const auto& [node, rule, views] = at;
  if (!SharesHeads(choosing.layout, axis) || !IsAttention(node) ||
      !SplitBy(views[0].dims[kTokenDim], axis)) {
    return std::nullopt;
  }
  const FactorIndex heads = rule.operands[1][kHeadsDim][0];
  if (!choosing.CanSplit(rule, heads, axis)) return std::nullopt;
  return heads;
}

// What attention makes of shared heads is split by tokens again by whoever reads it.
std::optional<FactorIndex> TokensOfHeads(const NodeAtHand& at, const std::string& axis,
                                         const Choosing& choosing) {
  const auto& [node, rule, views] = at;
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].dims.size() != kRank || !SplitBy(views[i].dims[kHeadsDim], axis)) continue;
    if (!IsAttention(choosing.graph.producer(node.inputs[i]))) continue;
    const ir::DimFactors& tokens = rule.operands[i][kTokenDim];
    if (!tokens.empty() && choosing.CanSplit(rule, tokens[0], axis)) return tokens[0];
  }
  return std::nullopt;
}

}  // namespace

// Tokens of a row are split from where the model looks them up on. What is summed over the blocks
// of a row becomes split along it again where it is one of its tensors (gradients of keys); sums
// for weights wait for the update.
Result<Choice> ChooseSequence(const NodeAtHand& at, const std::string& axis, Choosing& choosing) {
  const auto& [node, rule, views] = at;
  const ir::Graph& graph = choosing.graph;
  Choice choice{axis, std::nullopt, false};
  if (node.op == Op::kEmbedding && graph.type(node.inputs[1]).rank() == 2) {
    const FactorIndex tokens = rule.operands[1][1][0];
    choosing.tokens = graph.type(node.inputs[1]).dims[1];
    if (!choosing.CanSplit(rule, tokens, axis)) {
      return Fail(InvalidArgument(
          fmt::format("{}={} does not divide the {} tokens of a row; choose {} in {{{}}}", axis,
                      choosing.mesh.AxisSize(axis), choosing.tokens, axis,
                      DivisorList(choosing.tokens, choosing.suggest_up_to))));
    }
    choice.factor = tokens;
    return choice;
  }
  choice.factor = HeadsToShare(at, axis, choosing);
  if (!choice.factor) choice.factor = TokensOfHeads(at, axis, choosing);
  if (!choice.factor) choice.factor = choosing.FollowOperands(at, axis);
  if (!choice.factor) choice.factor = TokensOfSums(at, axis, choosing);
  if (!choice.factor) choice.passes_partial = choosing.CanPassPartial(at, axis);
  return choice;
}

}  // namespace meshwright::planner
