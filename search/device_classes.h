// Devices of a cluster that a search takes for equal.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/cost_model.h"
#include "planner/plan.h"
#include "planner/simulate.h"

namespace meshwright::search {

// Devices of about the same rate of products are one class, as slow as its slowest: what workers
// measure differs a little from one to the next, and more where they take turns on the same cores,
// which makes them equal. Classes go from fast to slow, devices of a class in the cluster's order.
// `cores`: of every device.
std::vector<std::vector<int>> ClassesOfDevices(const planner::CostModel& costs,
                                               std::span<const planner::CoreUse> cores);

// `size` neighbours among `members`, those around the slowest, and it first.
// REQUIRES: 1 <= size <= members.size().
std::vector<int> SlowestGroup(const std::vector<int>& members, size_t size,
                              const planner::CostModel& costs);

// With each layout again on the fastest devices, where that is a difference.
std::vector<planner::Layout> OnFastDevicesToo(std::vector<planner::Layout> layouts,
                                              const std::vector<std::vector<int>>& classes);

}  // namespace meshwright::search
