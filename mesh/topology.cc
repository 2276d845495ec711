#include "mesh/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/median.h"

namespace meshwright::mesh {
namespace {

// One of each worker: its devices were measured once.
std::map<std::string, std::vector<const DeviceProfile*>> ProfilesOfHosts(const Topology& topology) {
  std::map<std::string, std::vector<const DeviceProfile*>> profiles;
  std::set<std::string> workers;
  for (const Device& device : topology.devices) {
    if (device.profile == nullptr || !workers.insert(device.worker).second) continue;
    profiles[device.host].push_back(device.profile.get());
  }
  return profiles;
}

// Of those that know it; 0: none does.
double MedianKnown(const std::vector<const DeviceProfile*>& profiles, double DeviceProfile::*rate) {
  std::vector<double> known;
  for (const DeviceProfile* profile : profiles) {
    if (profile->*rate > 0) known.push_back(profile->*rate);
  }
  return Median(std::move(known));
}

std::optional<LinkCost> MedianLink(const std::vector<const DeviceProfile*>& profiles,
                                   std::optional<LinkCost> MeasuredLinks::*link) {
  std::vector<double> alpha_s, seconds_per_byte;
  for (const DeviceProfile* profile : profiles) {
    const std::optional<LinkCost>& measured = profile->links.*link;
    if (!measured) continue;
    alpha_s.push_back(measured->alpha_s);
    seconds_per_byte.push_back(measured->seconds_per_byte);
  }
  if (alpha_s.empty()) return std::nullopt;
  return LinkCost{Median(std::move(alpha_s)), Median(std::move(seconds_per_byte))};
}

// Of a host, 0: not known.
struct HostRates {
  double bytes_per_s = 0;
  double compute_share = 0;
};

double MemoryShare(const HostRates& host, const DeviceProfile& profile, int devices) {
  if (host.bytes_per_s <= 0) return 1;
  const double alone = profile.Rates(KernelClass::kElementwise).bytes_per_s;
  return std::min(1.0, host.bytes_per_s / (devices * alone));
}

// `busy`: the part of the host's other cores that computes, too.
double ComputeShare(const HostRates& host, double busy) {
  if (host.compute_share <= 0) return 1;
  return 1 - (1 - host.compute_share) * busy;
}

SharedProfile WithShares(const SharedProfile& profile, const HostRates& host, int devices,
                         double busy) {
  const double memory = MemoryShare(host, *profile, devices);
  const double compute = ComputeShare(host, busy);
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

void TakeMeasuredLinks(Topology& topology) {
  for (const auto& [name, profiles] : ProfilesOfHosts(topology)) {
    topology.hosts[name].links = {MedianLink(profiles, &MeasuredLinks::process),
                                  MedianLink(profiles, &MeasuredLinks::host),
                                  {},
                                  {}};
  }
}

void ShareHost(Topology& topology) {
  std::map<std::string, HostRates> rates;
  for (const auto& [name, profiles] : ProfilesOfHosts(topology)) {
    rates[name] = {MedianKnown(profiles, &DeviceProfile::host_bytes_per_s),
                   MedianKnown(profiles, &DeviceProfile::host_compute_share)};
  }
  std::map<std::string, int> devices_of_host;
  for (const Device& device : topology.devices) ++devices_of_host[device.host];
  // By profile, host, devices at once and busy part.
  std::map<std::tuple<SharedProfile, std::string, int, double>, SharedProfile> shared;
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
    SharedProfile& own = shared[{device.profile, device.host, at_once, busy}];
    if (own == nullptr) {
      own = WithShares(device.profile, rates.at(device.host), at_once, busy);
    }
    device.profile = own;
  }
}

}  // namespace meshwright::mesh
