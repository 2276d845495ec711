#include <fmt/format.h>

#include "base/check.h"
#include "planner/choosing.h"
#include "planner/expert_groups.h"
#include "planner/router_sweep.h"

namespace meshwright::planner {

using ir::FactorIndex;
using ir::Op;
using mesh::Sharding;

namespace {

constexpr size_t kRowDim = 0;
constexpr size_t kGroupDim = 1;     // or that of hosts
constexpr size_t kDimsOnHosts = 4;  // of choices whose tokens lie on hosts

// The factor of dim `dim` of an operand, which is one of its own.
FactorIndex FactorOf(const NodeAtHand& at, size_t operand, size_t dim) {
  const ir::DimFactors& factors = at.rule.operands[operand][dim];
  MW_CHECK(!factors.empty()) << ir::OpName(at.node.op) << " has no factor for dim " << dim;
  return factors[0];
}

Status Misfit(const NodeAtHand& at, const std::string& axis, FactorIndex factor,
              const Choosing& choosing) {
  return InvalidArgument(fmt::format(
      "{}={} does not divide the {} groups of experts of {}", axis, choosing.mesh.AxisSize(axis),
      at.rule.factors[static_cast<size_t>(factor)].size, ir::OpName(at.node.op)));
}

// Tokens are on the way by row, where their rows are split; where every rank has all rows (a
// program of few of them), each takes what its experts take, and results add up.
Choice ByRowsOfChoices(const NodeAtHand& at, size_t choices, const std::string& axis,
                       const Choosing& choosing) {
  Choice choice{axis, std::nullopt, false};
  const std::vector<mesh::AxisList>& dims = at.views[choices].dims;
  const bool on_hosts = dims.size() == kDimsOnHosts;
  if (SplitBy(dims[kRowDim], axis)) {
    choice.factor = FactorOf(at, choices, kRowDim);
  } else if (on_hosts && SplitBy(dims[kGroupDim], axis)) {
    choice.factor = FactorOf(at, choices, kGroupDim);
  } else if (at.node.op != Op::kDispatch && !on_hosts) {
    choice.factor = choosing.FollowOperands(at, axis);
  }
  return choice;
}

bool IsMovedOver(const ir::Node& node, const std::string& axis) {
  return node.attrs.Has(kSplitAttr) && node.attrs.Str(kMovedAxisAttr, axis) == axis;
}

// Whether the rows that a device has of an operand can be split once more.
bool HasRowsFor(const NodeAtHand& at, const std::string& axis, const Choosing& choosing) {
  const ir::Dims& dims = choosing.graph.type(at.node.inputs[0]).dims;
  const ir::Dims local = mesh::LocalDims(dims, WithoutAxis(at.views[0], axis), choosing.mesh);
  return local[kRowDim] % choosing.mesh.AxisSize(axis) == 0;
}

}  // namespace

Result<Choice> ChooseRows(const NodeAtHand& at, const std::string& axis, const Choosing& choosing) {
  Choice choice{axis, choosing.FollowOperands(at, axis), false};
  if (choice.factor) return choice;
  for (size_t i = 0; i < at.views.size(); ++i) {
    for (size_t d = 0; d < at.views[i].dims.size(); ++d) {
      if (!SplitBy(at.views[i].dims[d], axis)) continue;
      return Fail(
          InvalidArgument(fmt::format("operand {} is split along the batch (dim {}), which this "
                                      "op needs whole; compute per row, or use {}=1",
                                      i, d, axis)));
    }
  }
  // The sweep has added it up before (planner/router_sweep.h).
  if (axis == kMicro && at.node.attrs.Has(kWholeBatchAttr)) return choice;
  choice.passes_partial = choosing.CanPassPartial(at, axis);
  if (axis == kMicro && !choice.passes_partial) {
    for (const Sharding& view : at.views) {
      if (!view.partial.contains(axis)) continue;
      return Fail(
          InvalidArgument("a sum over the batch is used before the update; with microbatches > 1 "
                          "it is not known yet: divide in the "
                          "loss's count instead, or use microbatches=1"));
    }
  }
  return choice;
}

// Products of experts are split by expert, tokens on their way to and from them by row: between the
// two is an all-to-all. All else is split as other axes of rows split it.
Result<Choice> ChooseExperts(const NodeAtHand& at, const std::string& axis,
                             const Choosing& choosing) {
  Choice choice{axis, std::nullopt, false};
  switch (at.node.op) {
    case Op::kGroupedMatmul:
    case Op::kGroupedMatmulGrad:
      choice.factor = FactorOf(at, 0, kGroupDim);
      break;
    case Op::kDispatch:
    case Op::kCombine:
      return ByRowsOfChoices(at, 1, axis, choosing);
    case Op::kCombineGradWeights:
      return ByRowsOfChoices(at, 2, axis, choosing);
    case Op::kReshape:
      if (!IsMovedOver(at.node, axis)) return ChooseRows(at, axis, choosing);
      if (at.node.attrs.Int(kSplitAttr) == kByExperts) {
        choice.factor = FactorOf(at, 0, kGroupDim);
      } else if (HasRowsFor(at, axis, choosing)) {
        choice.factor = FactorOf(at, 0, kRowDim);
      } else {
        choice.factor = choosing.FollowOperands(at, axis);
        return choice;
      }
      break;
    default:
      return ChooseRows(at, axis, choosing);
  }
  if (choosing.CanSplit(at.rule, *choice.factor, axis)) return choice;
  return Fail(Misfit(at, axis, *choice.factor, choosing));
}

}  // namespace meshwright::planner
