#include <fmt/format.h>

#include "planner/choosing.h"
#include "planner/expert_groups.h"

namespace meshwright::planner {

using ir::FactorIndex;
using ir::Op;

namespace {

// The factor of dim `dim` of an operand.
FactorIndex FactorOf(const NodeAtHand& at, size_t operand, size_t dim) {
  return at.rule.operands[operand][dim][0];
}

}  // namespace

// Products of experts are split by expert, tokens on their way to and from them by row: between the
// two is an all-to-all. All else is split as other axes of rows split it.
Result<Choice> ChooseExperts(const NodeAtHand& at, const std::string& axis,
                             const Choosing& choosing) {
  constexpr size_t kRowDim = 0;
  constexpr size_t kGroupDim = 1;
  Choice choice{axis, std::nullopt, false};
  switch (at.node.op) {
    case Op::kGroupedMatmul:
    case Op::kGroupedMatmulGrad:
      choice.factor = FactorOf(at, 0, kGroupDim);
      break;
    case Op::kDispatch:
    case Op::kCombine:
    case Op::kCombineGradWeights:
      choice.factor = FactorOf(at, 0, kRowDim);
      break;
    case Op::kReshape:
      if (!at.node.attrs.Has(kSplitAttr)) return ChooseRows(at, axis, choosing);
      choice.factor =
          FactorOf(at, 0, at.node.attrs.Int(kSplitAttr) == kByExperts ? kGroupDim : kRowDim);
      break;
    default:
      return ChooseRows(at, axis, choosing);
  }
  if (choosing.CanSplit(at.rule, *choice.factor, axis)) return choice;
  const int64_t size = at.rule.factors[static_cast<size_t>(*choice.factor)].size;
  return Fail(InvalidArgument(fmt::format(
      "{}={} does not divide the {} {} of {}", axis, choosing.mesh.AxisSize(axis), size,
      at.node.op == Op::kGroupedMatmul || at.node.op == Op::kGroupedMatmulGrad ? "groups of experts"
                                                                               : "rows",
      ir::OpName(at.node.op))));
}

}  // namespace meshwright::planner
