#include "mesh/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::mesh {
namespace {

void TakeSlower(const std::optional<LinkCost>& measured, std::optional<LinkCost>& link) {
  if (!measured) return;
  if (!link) link = *measured;
  link->alpha_s = std::max(link->alpha_s, measured->alpha_s);
  link->seconds_per_byte = std::max(link->seconds_per_byte, measured->seconds_per_byte);
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

}  // namespace meshwright::mesh
