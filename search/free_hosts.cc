#include "search/free_hosts.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::search {
namespace {

size_t At(int index) { return static_cast<size_t>(index); }

}  // namespace

FreeHosts::FreeHosts(const std::vector<StageDeviceClass>& classes) {
  State full;
  for (size_t c = 0; c < classes.size(); ++c) {
    std::map<int, Pool> pools;
    for (size_t host = 0; host < classes[c].host_devices.size(); ++host) {
      pools[classes[c].host_devices[host]].hosts.push_back(static_cast<int>(host));
    }
    for (auto& [devices, pool] : pools) {
      pool.device_class = static_cast<int>(c);
      pool.devices = devices;
      pool.first = static_cast<int>(full.size());
      full.resize(full.size() + At(devices) + 1);
      full.back() = static_cast<int32_t>(pool.hosts.size());
      pools_.push_back(std::move(pool));
    }
  }
  NumberOf(full);
}

int FreeHosts::NumberOf(const State& state) {
  const auto [at, fresh] = number_of_.try_emplace(state, static_cast<int>(states_.size()));
  if (!fresh) return at->second;
  int free = 0;
  for (const Pool& pool : pools_) {
    for (int f = 1; f <= pool.devices; ++f) free += f * state[At(pool.first + f)];
  }
  states_.push_back(state);
  free_devices_.push_back(free);
  after_.emplace_back();
  return at->second;
}

const std::vector<int>& FreeHosts::After(int state, int device_class, const SubmeshShape& shape) {
  const auto [at, fresh] = after_[At(state)].try_emplace({device_class, shape});
  if (!fresh) return at->second;
  std::vector<int> next;
  for (const Pool& pool : pools_) {
    const int taken = shape.devices_per_host;
    const bool fits = shape.hosts == 1 ? taken <= pool.devices : taken == pool.devices;
    if (pool.device_class != device_class || !fits) continue;
    for (int f = taken; f <= pool.devices; ++f) {
      State left = states_[At(state)];
      if (left[At(pool.first + f)] < shape.hosts) continue;
      left[At(pool.first + f)] -= shape.hosts;
      left[At(pool.first + f - taken)] += shape.hosts;
      next.push_back(NumberOf(left));
    }
  }
  // Numbers of new states have moved what `at` pointed to.
  return after_[At(state)][{device_class, shape}] = std::move(next);
}

std::vector<SubmeshPlace> FreeHosts::PlacesOf(const std::vector<Taken>& taken) const {
  std::vector<std::vector<int>> free;  // per pool and host
  for (const Pool& pool : pools_) free.emplace_back(pool.hosts.size(), pool.devices);
  std::vector<SubmeshPlace> places;
  const State* before = &states_.front();
  for (const Taken& one : taken) {
    const State& after = states_[At(one.state)];
    SubmeshPlace& place = places.emplace_back();
    const int count = one.shape.devices_per_host;
    for (size_t p = 0; p < pools_.size() && place.hosts.empty(); ++p) {
      const Pool& pool = pools_[p];
      // Of the hosts with as many devices free there are fewer now.
      int had = pool.devices;
      while (had >= count && (*before)[At(pool.first + had)] <= after[At(pool.first + had)]) --had;
      if (pool.device_class != one.device_class || had < count) continue;
      place.first_device = had - count;
      for (size_t host = free[p].size(); host-- > 0;) {
        if (free[p][host] != had || place.hosts.size() == At(one.shape.hosts)) continue;
        free[p][host] -= count;
        place.hosts.insert(place.hosts.begin(), pool.hosts[host]);
      }
    }
    MW_CHECK(place.hosts.size() == At(one.shape.hosts)) << "no place for a submesh";
    before = &after;
  }
  return places;
}

}  // namespace meshwright::search
