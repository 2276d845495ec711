#include "mesh/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"

namespace meshwright::mesh {
namespace {

Status CheckLink(const LinkCost& link, const std::string& where) {
  const bool alpha = link.alpha_s >= 0 && std::isfinite(link.alpha_s);
  const bool beta = link.seconds_per_byte > 0 && std::isfinite(link.seconds_per_byte);
  if (alpha && beta) return OkStatus();
  return InvalidArgument(
      fmt::format("cluster: the link {} has a latency of {} s and {} s per byte; the first must be "
                  "0 or more, the second above 0",
                  where, link.alpha_s, link.seconds_per_byte));
}

Result<SharedProfile> FindProfile(const Cluster& cluster, const HostGroup& group) {
  std::vector<std::string> names;
  for (const auto* table : {&cluster.profiles, &KnownDeviceProfiles()}) {
    if (const auto it = table->find(group.profile); it != table->end()) return it->second;
    for (const auto& [name, profile] : *table) names.push_back(name);
  }
  return Fail(InvalidArgument(fmt::format("cluster: hosts \"{}\": unknown device '{}'{}; known: {}",
                                          group.name, group.profile,
                                          DidYouMean(group.profile, names), Join(names, ", "))));
}

Status CheckCount(const HostGroup& group, std::string_view what, int64_t value, int64_t low) {
  if (value >= low && value <= kMostDevices) return OkStatus();
  return InvalidArgument(fmt::format("cluster: hosts \"{}\": {} is {}; it must be in [{}, {}]",
                                     group.name, what, value, low, kMostDevices));
}

Status CheckGroup(const HostGroup& group) {
  if (group.name.empty()) return InvalidArgument("cluster: a group of hosts has no name");
  MW_TRY(CheckCount(group, "count", group.count, 1));
  MW_TRY(CheckCount(group, "devices", group.devices, 1));
  MW_TRY(CheckCount(group, "cores", group.cores, 0));
  MW_TRY(CheckCount(group, "threads_per_device", group.threads_per_device, 1));
  if (group.nic_bytes_per_s >= 0 && std::isfinite(group.nic_bytes_per_s)) return OkStatus();
  return InvalidArgument(
      fmt::format("cluster: hosts \"{}\": the network cards move {} bytes per s; it must be 0 (no "
                  "limit) or more",
                  group.name, group.nic_bytes_per_s));
}

Status CheckGroups(const Cluster& cluster) {
  if (cluster.hosts.empty()) return InvalidArgument("cluster: it has no hosts");
  std::set<std::string> names;
  int64_t devices = 0;
  for (const HostGroup& group : cluster.hosts) {
    MW_TRY(CheckGroup(group));
    if (!names.insert(group.name).second) {
      return InvalidArgument(
          fmt::format("cluster: hosts \"{}\" are there twice; rename one", group.name));
    }
    devices += group.count * group.devices;
    if (devices > kMostDevices) {
      return InvalidArgument(
          fmt::format("cluster: up to hosts \"{}\" there are {} devices; at most {}", group.name,
                      devices, kMostDevices));
    }
  }
  return OkStatus();
}

Status CheckLinks(const Cluster& cluster) {
  MW_TRY(CheckLink(cluster.links.host, "within a host"));
  MW_TRY(CheckLink(cluster.links.network, "between hosts"));
  std::vector<std::string> known;
  for (const HostGroup& group : cluster.hosts) known.push_back(group.name);
  std::set<std::pair<std::string, std::string>> pairs;
  for (const SlowLink& slow : cluster.links.slow) {
    const std::string where = fmt::format("between \"{}\" and \"{}\"", slow.from, slow.to);
    for (const std::string& end : {slow.from, slow.to}) {
      if (std::find(known.begin(), known.end(), end) != known.end()) continue;
      return InvalidArgument(
          fmt::format("cluster: the link {}: there are no hosts \"{}\"{}; "
                      "known: {}",
                      where, end, DidYouMean(end, known), Join(known, ", ")));
    }
    if (!pairs.insert(std::minmax(slow.from, slow.to)).second) {
      return InvalidArgument(fmt::format("cluster: the link {} is there twice", where));
    }
    MW_TRY(CheckLink(slow.cost, where));
  }
  return OkStatus();
}

// A name that is another plus digits may make the same host id: "a1" + "0" and "a" + "10".
Status AddHosts(const HostGroup& group, const SharedProfile& profile, Topology& topology) {
  for (int64_t h = 0; h < group.count; ++h) {
    const std::string id = fmt::format("{}{}", group.name, h);
    const Host host{
        group.name, static_cast<int>(group.cores), group.nic_bytes_per_s, {}, group.memory_bytes};
    if (!topology.hosts.emplace(id, host).second) {
      return InvalidArgument(
          fmt::format("cluster: hosts \"{}\" and \"{}\" both have a host {}; rename one",
                      group.name, topology.hosts.at(id).group, id));
    }
    for (int64_t d = 0; d < group.devices; ++d) {
      Device device;
      device.worker = id;
      device.local_index = static_cast<int>(d);
      device.host = id;
      device.memory_bytes = profile->usable_bytes();
      device.disk = DiskOf(profile->kind != DeviceKind::kCpu, false);
      device.disk_bytes = group.disk_bytes;
      device.profile = profile;
      device.threads = static_cast<int>(group.threads_per_device);
      topology.devices.push_back(std::move(device));
    }
  }
  return OkStatus();
}

}  // namespace

Result<Topology> TopologyOfCluster(const Cluster& cluster) {
  MW_TRY(CheckGroups(cluster));
  MW_TRY(CheckLinks(cluster));
  Topology topology;
  topology.links = cluster.links;
  for (const HostGroup& group : cluster.hosts) {
    MW_ASSIGN_OR_RETURN(const SharedProfile profile, FindProfile(cluster, group));
    MW_TRY(CheckDeviceProfile(*profile));
    MW_TRY(AddHosts(group, profile, topology));
  }
  ShareHost(topology);
  return topology;
}

std::string SummaryOf(const Cluster& cluster) {
  int64_t hosts = 0;
  int64_t devices = 0;
  for (const HostGroup& group : cluster.hosts) {
    hosts += group.count;
    devices += group.count * group.devices;
  }
  return fmt::format("{}: {} device{} on {} host{}", cluster.name, devices, devices == 1 ? "" : "s",
                     hosts, hosts == 1 ? "" : "s");
}

}  // namespace meshwright::mesh
