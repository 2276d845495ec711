// Which layouts need not be priced, and which of those that are priced is the plan.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "search/layout_cost.h"

namespace meshwright::search {

bool IsNear(const LayoutCost& cost, const LayoutCost& fastest) {
  constexpr double kNear = 1.01;
  constexpr double kNearOfOneStage = 1.05;
  const bool one_stage = cost.layout.shape().parts() == 1 && fastest.layout.shape().parts() == 1 &&
                         cost.layout.degrees == fastest.layout.degrees;
  return cost.step_s <= (one_stage ? kNearOfOneStage : kNear) * fastest.step_s;
}

size_t ShortestOfNearest(const std::vector<LayoutCost>& best) {
  const auto runs = [](const planner::Layout& layout) {
    return layout.shape().parts() * layout.microbatches * (layout.SplitsBackward() ? 3 : 2);
  };
  size_t chosen = 0;
  for (size_t i = 1; i < best.size(); ++i) {
    if (IsNear(best[i], best[0]) && 2 * runs(best[i].layout) <= runs(best[chosen].layout))
      chosen = i;
  }
  return chosen;
}

double LeastSeconds(const LayoutInput& input, const planner::Layout& layout) {
  if (input.layers.size() > 1) return 0;
  // A class that is smaller than a tensor group was measured together with slower devices.
  double least_s = std::numeric_limits<double>::infinity();
  for (const auto& layers : input.layers[0]) {
    double sum = 0;
    double largest = 0;
    for (const LayerModes* modes : layers) {
      const LayerProbe& probe = modes->at(input.modes.front());
      sum += probe.forward_s + probe.backward_s;
      largest = std::max(largest, probe.forward_s + probe.backward_s);
    }
    const double per_stage =
        std::max(sum / static_cast<double>(layout.pipeline), layout.chunks == 1 ? largest : 0);
    least_s = std::min(least_s, static_cast<double>(layout.microbatches) * per_stage);
  }
  return least_s;
}

}  // namespace meshwright::search
