#include "search/stage_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace meshwright::search {
namespace {

// Packs items (descending) into hosts with free devices.
class Packer {
 public:
  Packer(std::vector<int> items, std::vector<int> free)
      : items_(std::move(items)), free_(std::move(free)), host_of_(items_.size()) {}

  bool Pack(size_t item) {
    if (item == items_.size()) return true;
    if (!Promising(item)) return false;
    const int wanted = items_[item];
    for (int host : Candidates(wanted)) {
      free_[static_cast<size_t>(host)] -= wanted;
      host_of_[item] = host;
      if (Pack(item + 1)) return true;
      free_[static_cast<size_t>(host)] += wanted;
    }
    return false;
  }

  int host_of(size_t item) const { return host_of_[item]; }

 private:
  // Enough devices are free, and this arrangement of them has not failed before.
  bool Promising(size_t item) {
    const auto from = items_.begin() + static_cast<std::ptrdiff_t>(item);
    const int needed = std::accumulate(from, items_.end(), 0);
    int usable = 0;
    std::map<int, int> arrangement;
    for (int devices : free_) {
      if (devices < items_.back()) continue;
      usable += devices;
      ++arrangement[devices];
    }
    return needed <= usable && seen_.emplace(item, std::move(arrangement)).second;
  }

  // One host of every number of free devices, the fullest first; one that is filled alone will do:
  // whatever else could go there can go where this item would have gone.
  std::vector<int> Candidates(int wanted) const {
    std::map<int, int> first_with;
    for (size_t host = 0; host < free_.size(); ++host) {
      if (free_[host] >= wanted) first_with.emplace(free_[host], static_cast<int>(host));
    }
    std::vector<int> hosts;
    for (const auto& [devices, host] : first_with) {
      hosts.push_back(host);
      if (devices == wanted) break;
    }
    return hosts;
  }

  std::vector<int> items_;
  std::vector<int> free_;
  std::vector<int> host_of_;
  std::set<std::pair<size_t, std::map<int, int>>> seen_;
};

// Whole hosts for the shapes that take several; false: there are too few.
bool TakeWholeHosts(std::span<const int> host_devices, std::span<const SubmeshShape> shapes,
                    std::vector<int>& free, std::vector<SubmeshPlace>& places) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].hosts == 1) continue;
    for (size_t host = 0; host < free.size(); ++host) {
      if (static_cast<int>(places[i].hosts.size()) == shapes[i].hosts) break;
      if (free[host] == 0 || host_devices[host] != shapes[i].devices_per_host) continue;
      places[i].hosts.push_back(static_cast<int>(host));
      free[host] = 0;
    }
    if (static_cast<int>(places[i].hosts.size()) < shapes[i].hosts) return false;
  }
  return true;
}

}  // namespace

std::optional<std::vector<SubmeshPlace>> PackSubmeshes(std::span<const int> host_devices,
                                                       std::span<const SubmeshShape> shapes) {
  std::vector<int> free(host_devices.begin(), host_devices.end());
  std::vector<SubmeshPlace> places(shapes.size());
  if (!TakeWholeHosts(host_devices, shapes, free, places)) return std::nullopt;
  std::vector<size_t> order;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].hosts == 1) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return shapes[a].devices_per_host > shapes[b].devices_per_host;
  });
  std::vector<int> items;
  for (size_t i : order) items.push_back(shapes[i].devices_per_host);
  std::vector<int> begin(free.size());
  Packer packer(items, std::move(free));
  if (!packer.Pack(0)) return std::nullopt;
  for (size_t item = 0; item < order.size(); ++item) {
    const int host = packer.host_of(item);
    places[order[item]] = {{host}, begin[static_cast<size_t>(host)]};
    begin[static_cast<size_t>(host)] += items[item];
  }
  return places;
}

}  // namespace meshwright::search
