// Which layouts need not be priced.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "search/layout_cost.h"

namespace meshwright::search {

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
