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
  choice.factor = choosing.FollowOperands(at, axis);
  if (!choice.factor) choice.factor = TokensOfSums(at, axis, choosing);
  if (!choice.factor) choice.passes_partial = choosing.CanPassPartial(at, axis);
  return choice;
}

}  // namespace meshwright::planner
