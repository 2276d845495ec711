#include "search/device_classes.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace meshwright::search {
namespace {

constexpr double kEqualRates = 0.95;

double RateOf(int device, const planner::CostModel& costs) {
  return costs.ProfileOf(device).RateOf(mesh::KernelClass::kProduct, ir::DType::kF32, 1e9);
}

}  // namespace

std::vector<std::vector<int>> ClassesOfDevices(const planner::CostModel& costs) {
  std::vector<int> devices(static_cast<size_t>(costs.device_count()));
  std::iota(devices.begin(), devices.end(), 0);
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int a, int b) { return RateOf(a, costs) > RateOf(b, costs); });
  std::vector<std::vector<int>> classes;
  for (const int device : devices) {
    const bool joins =
        !classes.empty() && RateOf(device, costs) >= kEqualRates * RateOf(classes.back()[0], costs);
    if (!joins) classes.emplace_back();
    classes.back().push_back(device);
  }
  for (std::vector<int>& members : classes) std::sort(members.begin(), members.end());
  return classes;
}

std::vector<int> SlowestGroup(const std::vector<int>& members, size_t size,
                              const planner::CostModel& costs) {
  MW_CHECK(size >= 1 && size <= members.size()) << size << " of " << members.size();
  const auto slower = [&](int a, int b) { return RateOf(a, costs) < RateOf(b, costs); };
  const auto at = static_cast<size_t>(std::min_element(members.begin(), members.end(), slower) -
                                      members.begin());
  const size_t begin = std::min(at / size * size, members.size() - size);
  const auto first = members.begin() + static_cast<std::ptrdiff_t>(begin);
  std::vector<int> group(first, first + static_cast<std::ptrdiff_t>(size));
  std::iter_swap(group.begin(), std::min_element(group.begin(), group.end(), slower));
  return group;
}

std::vector<planner::Layout> OnFastDevicesToo(std::vector<planner::Layout> layouts,
                                              const std::vector<std::vector<int>>& classes) {
  if (classes.size() == 1) return layouts;
  std::vector<int> fast_first;
  for (const std::vector<int>& members : classes) {
    fast_first.insert(fast_first.end(), members.begin(), members.end());
  }
  std::vector<int> first(fast_first.size());
  std::iota(first.begin(), first.end(), 0);
  const size_t count = layouts.size();
  for (size_t i = 0; i < count; ++i) {
    const auto end = fast_first.begin() + layouts[i].device_count();
    planner::Layout layout = layouts[i];
    layout.devices.assign(fast_first.begin(), end);
    if (std::equal(fast_first.begin(), end, first.begin())) continue;
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace meshwright::search
