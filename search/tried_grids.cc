#include "search/tried_grids.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "planner/memory.h"

namespace meshwright::search {

LayoutCost TriedLayout(const planner::Plan& plan, double step_s) {
  LayoutCost row;
  row.step_s = step_s;
  row.layout = plan.layout;
  row.stages.resize(1);
  row.stages[0].state_bytes = planner::FullestBytes(plan.memory);
  return row;
}

void CountGrids(const std::vector<LayoutCost>& tried, bool only_grids,
                std::vector<LayoutCost>& best) {
  if (best.empty()) return;
  std::vector<LayoutCost> rows;
  for (const LayoutCost& grid : tried) {
    if (grid.layout.tensor_axes.size() < 2) continue;
    planner::Layout plain = grid.layout;
    plain.tensor_axes.clear();
    const auto is_plain = [text = plain.ToString()](const LayoutCost& cost) {
      return cost.layout.ToString() == text;
    };
    LayoutCost row = grid;
    const auto estimate = std::find_if(best.begin(), best.end(), is_plain);
    const auto forecast = std::find_if(tried.begin(), tried.end(), is_plain);
    if (estimate != best.end() && forecast != tried.end()) {
      MW_CHECK(forecast->step_s > 0) << "a step of " << forecast->step_s << " s";
      row.step_s *= estimate->step_s / forecast->step_s;
    }
    rows.push_back(std::move(row));
  }
  if (only_grids && !rows.empty()) best.clear();
  best.insert(best.end(), rows.begin(), rows.end());
  std::stable_sort(best.begin(), best.end(),
                   [](const LayoutCost& a, const LayoutCost& b) { return a.step_s < b.step_s; });
}

}  // namespace meshwright::search
