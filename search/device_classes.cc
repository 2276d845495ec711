#include "search/device_classes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "planner/node_prices.h"

namespace meshwright::search {
namespace {

constexpr double kEqualRates = 0.95;

double RateOf(int device, const planner::CostModel& costs) {
  return costs.ProfileOf(device).RateOf(mesh::KernelClass::kProduct, ir::DType::kF32, 1e9);
}

}  // namespace

std::vector<double> RatesOfDevices(const planner::CostModel& costs,
                                   std::span<const planner::CoreUse> cores) {
  struct Sum {
    double rates = 0;
    int devices = 0;
    int threads = 0;
  };
  std::map<int, Sum> hosts;
  std::map<std::pair<int, int>, Sum> equals;  // by host and threads
  std::vector<double> rates;
  for (size_t i = 0; i < cores.size(); ++i) {
    rates.push_back(RateOf(static_cast<int>(i), costs));
    hosts[cores[i].host].threads += cores[i].threads;
    Sum& sum = equals[{cores[i].host, cores[i].threads}];
    sum.rates += rates.back();
    ++sum.devices;
  }
  for (size_t i = 0; i < cores.size(); ++i) {
    if (cores[i].host < 0 || hosts[cores[i].host].threads <= cores[i].cores) continue;
    const Sum& sum = equals[{cores[i].host, cores[i].threads}];
    rates[i] = sum.rates / sum.devices;
  }
  return rates;
}

std::vector<std::vector<int>> ClassesOfDevices(std::span<const double> rates) {
  const auto rate_of = [&](int device) { return rates[static_cast<size_t>(device)]; };
  std::vector<int> devices(rates.size());
  std::iota(devices.begin(), devices.end(), 0);
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int a, int b) { return rate_of(a) > rate_of(b); });
  std::vector<std::vector<int>> classes;
  for (const int device : devices) {
    const bool joins =
        !classes.empty() && rate_of(device) >= kEqualRates * rate_of(classes.back()[0]);
    if (!joins) classes.emplace_back();
    classes.back().push_back(device);
  }
  for (std::vector<int>& members : classes) std::sort(members.begin(), members.end());
  return classes;
}

ProbeDevices SlowestGroup(const std::vector<int>& members, size_t size,
                          std::span<const double> rates, const planner::CostModel& costs) {
  MW_CHECK(size >= 1 && size <= members.size()) << size << " of " << members.size();
  const auto slower = [&](int a, int b) {
    return rates[static_cast<size_t>(a)] < rates[static_cast<size_t>(b)];
  };
  const auto at = static_cast<size_t>(std::min_element(members.begin(), members.end(), slower) -
                                      members.begin());
  const auto group_at = [&](size_t begin) {
    const auto first = members.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::vector<int>(first, first + static_cast<std::ptrdiff_t>(size));
  };
  // That of the slowest device stands first. It may be among the last, which fill no group.
  const size_t own = std::min(at / size, members.size() / size - 1) * size;
  std::vector<std::vector<int>> groups = {group_at(own)};
  for (size_t begin = 0; size > 1 && begin + size <= members.size(); begin += size) {
    groups.push_back(group_at(begin));
  }
  return {std::move(groups[planner::SlowestLinks(groups, costs)]), members[at]};
}

SlowestGroups::SlowestGroups(const std::vector<std::vector<int>>& classes,
                             std::vector<double> rates, const planner::CostModel& costs)
    : classes_(classes), rates_(std::move(rates)), costs_(costs), all_(rates_.size()) {
  std::iota(all_.begin(), all_.end(), 0);
}

const ProbeDevices& SlowestGroups::Of(size_t of_class, size_t size) {
  const auto [it, fresh] = found_.try_emplace({of_class, size});
  if (!fresh) return it->second;
  const std::vector<int>& members = classes_[of_class];
  return it->second = SlowestGroup(members.size() < size ? all_ : members, size, rates_, costs_);
}

std::vector<planner::Layout> OnFastDevicesToo(std::vector<planner::Layout> layouts,
                                              const std::vector<std::vector<int>>& classes) {
  if (classes.size() == 1 || layouts.empty() || !layouts[0].devices.empty()) return layouts;
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
