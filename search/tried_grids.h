// Layouts whose tensor group is a grid, among those that a plan was chosen from.
//
// The search for layouts prices a tensor group as one axis; a grid of it is a plan with searched
// shardings, which has a forecast and no estimate.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/plan.h"
#include "search/layout_cost.h"

namespace meshwright::search {

// Grids of a tensor group: all of two axes, and 2 x 2 x the rest.
std::vector<std::vector<int64_t>> GridsOf(int64_t tensor);

// The row of a plan that is made: its forecast, and the bytes of its fullest device.
LayoutCost TriedLayout(const planner::Plan& plan, double step_s);

// Adds the grids among `tried` to the fastest layouts, which stay in order. only_grids: the job
// names the grid, and layouts without it are none that it may have. Nothing where `best` is empty.
void CountGrids(const std::vector<LayoutCost>& tried, bool only_grids,
                std::vector<LayoutCost>& best);

}  // namespace meshwright::search
