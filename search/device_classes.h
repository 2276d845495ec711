// Devices of a cluster that a search takes for equal.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/cost_model.h"
#include "planner/plan.h"

namespace meshwright::search {

// Devices of about the same rate of products are one class, as slow as its slowest: what workers
// measure differs a little from one to the next. Classes go from fast to slow, devices of a class
// in the cluster's order.
std::vector<std::vector<int>> ClassesOfDevices(const planner::CostModel& costs);

// `size` neighbours among `members`, those around the slowest, and it first.
// REQUIRES: 1 <= size <= members.size().
std::vector<int> SlowestGroup(const std::vector<int>& members, size_t size,
                              const planner::CostModel& costs);

// With each layout again on the fastest devices, where that is a difference.
std::vector<planner::Layout> OnFastDevicesToo(std::vector<planner::Layout> layouts,
                                              const std::vector<std::vector<int>>& classes);

}  // namespace meshwright::search
