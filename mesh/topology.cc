#include "mesh/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace meshwright::mesh {
namespace {

void TakeSlower(const std::optional<LinkCost>& measured, std::optional<LinkCost>& link) {
  if (!measured) return;
  link = link ? Slower(*link, *measured) : *measured;
}

double MemoryShare(const DeviceProfile& profile, int devices) {
  if (profile.host_bytes_per_s <= 0) return 1;
  const double alone = profile.Rates(KernelClass::kElementwise).bytes_per_s;
  return std::min(1.0, profile.host_bytes_per_s / (devices * alone));
}

// `busy`: the part of the host's other cores that computes, too.
double ComputeShare(const DeviceProfile& profile, double busy) {
  if (profile.host_compute_share <= 0) return 1;
  return 1 - (1 - profile.host_compute_share) * busy;
}

SharedProfile WithShares(const SharedProfile& profile, int devices, double busy) {
  const double memory = MemoryShare(*profile, devices);
  const double compute = ComputeShare(*profile, busy);
  if (memory >= 1 && compute >= 1) return profile;
  DeviceProfile slower = *profile;
  for (KernelRates& rates : slower.kernels) {
    rates.bytes_per_s *= memory;
    for (RateCurve& curve : rates.curves) {
      for (RatePoint& point : curve) point.flops_per_s *= compute;
    }
  }
  return std::make_shared<const DeviceProfile>(std::move(slower));
}

}  // namespace

void AddMeasuredLinks(const DeviceProfile& profile, Host& host) {
  TakeSlower(profile.links.process, host.links.process);
  TakeSlower(profile.links.host, host.links.host);
}

std::string_view LinkClassName(LinkClass link) {
  switch (link) {
    case LinkClass::kDevice:
      return "device";
    case LinkClass::kHost:
      return "host";
    case LinkClass::kNetwork:
      return "network";
    case LinkClass::kSlow:
      return "slow";
  }
  return "?";
}

Topology Topology::Local(int count, int devices_per_worker) {
  MW_CHECK(count >= 0 && devices_per_worker >= 1)
      << "count " << count << ", devices_per_worker " << devices_per_worker;
  Topology topology;
  for (int i = 0; i < count; ++i) {
    Device device;
    device.worker = fmt::format("worker{}", i / devices_per_worker);
    device.local_index = i % devices_per_worker;
    device.host = "local";
    topology.devices.push_back(std::move(device));
  }
  return topology;
}

const DeviceProfile& Topology::ProfileOf(size_t device) const {
  MW_CHECK(device < devices.size()) << "device " << device << " of " << devices.size();
  const SharedProfile& profile = devices[device].profile;
  return profile != nullptr ? *profile : *DefaultDeviceProfile();
}

void ShareHost(Topology& topology) {
  std::map<std::string, int> devices_of_host;
  for (const Device& device : topology.devices) ++devices_of_host[device.host];
  std::map<std::tuple<SharedProfile, int, double>, SharedProfile> shared;
  for (Device& device : topology.devices) {
    if (device.profile == nullptr) continue;
    double busy = 0;
    int at_once = devices_of_host.at(device.host);
    const auto host = topology.hosts.find(device.host);
    if (host != topology.hosts.end() && host->second.cores > 0) {
      const int cores = host->second.cores;
      const int threads = std::max(1, device.threads);
      at_once = std::min(at_once, std::max(1, cores / threads));
      if (cores > threads) {
        busy = std::min(1.0, static_cast<double>((at_once - 1) * threads) / (cores - threads));
      }
    }
    SharedProfile& own = shared[{device.profile, at_once, busy}];
    if (own == nullptr) own = WithShares(device.profile, at_once, busy);
    device.profile = own;
  }
}

}  // namespace meshwright::mesh
