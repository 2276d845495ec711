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

// FLOPs per second of large products, of every device. Devices with as many threads that take turns
// on the same cores have the mean of theirs: what each measured differs by what else ran meanwhile.
// `cores`: of every device.
std::vector<double> RatesOfDevices(const planner::CostModel& costs,
                                   std::span<const planner::CoreUse> cores);

// Devices of about the same rate are one class, as slow as its slowest: what workers measure
// differs a little from one to the next. Classes go from fast to slow, devices of a class in the
// cluster's order.
std::vector<std::vector<int>> ClassesOfDevices(std::span<const double> rates);

// `size` neighbours among `members`, those around the slowest, and it first.
// REQUIRES: 1 <= size <= members.size().
std::vector<int> SlowestGroup(const std::vector<int>& members, size_t size,
                              std::span<const double> rates);

// With each layout again on the fastest devices, where that is a difference.
std::vector<planner::Layout> OnFastDevicesToo(std::vector<planner::Layout> layouts,
                                              const std::vector<std::vector<int>>& classes);

}  // namespace meshwright::search
