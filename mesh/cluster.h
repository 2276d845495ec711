// A cluster that is described instead of connected: groups of equal hosts, their devices, and the
// links between them.
//
// Groups may differ in everything: devices per host, profile, network cards. Links within a host
// and between hosts have a cost each; pairs of groups may have a slower one (two rooms, two sites).
// A file says it as TOML (config/cluster_file.h).
//
// Thread rule: values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mesh/topology.h"

namespace meshwright::mesh {

struct HostGroup {
  std::string name;  // hosts are name0, name1, ...
  int64_t count = 1;
  int64_t devices = 1;  // of each host
  std::string profile;  // in Cluster::profiles, or known
  int64_t cores = 0;    // of each host, which its devices share; 0: each device has its own
  int64_t threads_per_device = 1;
  double nic_bytes_per_s = 0;  // of a host, in one direction; 0: no limit
  int64_t memory_bytes = 0;    // of a host, for what its devices keep there; 0: not checked
  int64_t disk_bytes = 0;      // of a host, likewise
};

struct Cluster {
  std::string name;
  std::vector<HostGroup> hosts;
  std::map<std::string, SharedProfile> profiles;  // besides the known ones, and before them
  Links links;
};

inline constexpr int64_t kMostDevices = 1 << 16;

// The devices in placement order, one worker per host. Errors: kInvalidArgument naming the host
// group, profile or link that is missing, twice or out of range, with what is known.
Result<Topology> TopologyOfCluster(const Cluster& cluster);

// "a100-128x8: 1024 devices on 128 hosts".
std::string SummaryOf(const Cluster& cluster);

}  // namespace meshwright::mesh
