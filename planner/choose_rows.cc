#include <fmt/format.h>

#include "planner/choosing.h"
#include "planner/router_sweep.h"

namespace meshwright::planner {

using mesh::Sharding;

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

}  // namespace meshwright::planner
