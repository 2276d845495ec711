// Devices of a cluster that a search takes for equal.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <utility>
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

// What the layers of a class of devices are priced on.
struct ProbeDevices {
  std::vector<int> group;  // in the order of the axes
  int slowest = 0;         // runs the kernels: a step waits for it, in whichever group it is
};

// Layouts put every `size` of `members` into a group. Where hosts have no multiple of `size`, some
// groups are on two hosts, and the others wait for them: of groups with the slowest links that of
// the slowest device, else the first. REQUIRES: 1 <= size <= members.size().
ProbeDevices SlowestGroup(const std::vector<int>& members, size_t size,
                          std::span<const double> rates, const planner::CostModel& costs);

// The slowest groups of classes, each found once; of a class that is too small, that of all
// devices. Not shared between threads. Costs outlive it.
class SlowestGroups {
 public:
  SlowestGroups(const std::vector<std::vector<int>>& classes, std::vector<double> rates,
                const planner::CostModel& costs);
  const ProbeDevices& Of(size_t of_class, size_t size);

 private:
  const std::vector<std::vector<int>> classes_;
  const std::vector<double> rates_;
  const planner::CostModel& costs_;
  std::vector<int> all_;
  std::map<std::pair<size_t, size_t>, ProbeDevices> found_;  // by class and size
};

// With each layout again on the fastest devices, where that is a difference.
std::vector<planner::Layout> OnFastDevicesToo(std::vector<planner::Layout> layouts,
                                              const std::vector<std::vector<int>>& classes);

}  // namespace meshwright::search
