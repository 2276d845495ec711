#include "search/tried_grids.h"

#include <algorithm>

#include "planner/memory.h"

namespace meshwright::search {

std::vector<std::vector<int64_t>> GridsOf(int64_t tensor) {
  std::vector<std::vector<int64_t>> grids;
  for (int64_t a = 2; a * a <= tensor; ++a) {
    if (tensor % a == 0) grids.push_back({a, tensor / a});
  }
  if (tensor % 8 == 0) grids.push_back({2, 2, tensor / 4});
  return grids;
}

LayoutCost TriedLayout(const planner::Plan& plan, double step_s) {
  LayoutCost row;
  row.step_s = step_s;
  row.is_forecast = true;
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
    if (grid.layout.tensor_axes.size() > 1) rows.push_back(grid);
  }
  if (only_grids && !rows.empty()) best.clear();
  best.insert(best.end(), rows.begin(), rows.end());
  std::stable_sort(best.begin(), best.end(),
                   [](const LayoutCost& a, const LayoutCost& b) { return a.step_s < b.step_s; });
}

}  // namespace meshwright::search
