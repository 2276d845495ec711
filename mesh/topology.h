// The cluster as the planner sees it: hosts, their workers and devices, and what links cost. A
// snapshot of the membership, or a hypothetical cluster for a dry run (mesh/cluster.h).
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "mesh/cost.h"
#include "mesh/device_profile.h"

namespace meshwright::mesh {

// Whether a device's state may lie on a disk.
enum class Disk : uint8_t {
  kPerhaps,   // nobody says otherwise
  kNoFolder,  // its worker was started without one for it
  kOfGpu,     // GPUs keep nothing on one
};

struct Device {
  std::string worker;        // worker name
  int local_index = 0;       // on that worker
  std::string host;          // host id
  int64_t memory_bytes = 0;  // 0: unknown, not checked
  Disk disk = Disk::kPerhaps;
  int64_t disk_bytes = 0;  // that its worker's devices may have there together; 0: as above
  SharedProfile profile;   // null: DefaultDeviceProfile()
  int threads = 1;         // that it computes with, where it shares the host's cores
};

struct Host {
  std::string group;           // of equal hosts; links may differ between groups
  int cores = 0;               // that its devices share; 0: each device has its own
  double nic_bytes_per_s = 0;  // of all network cards in one direction; 0: no limit
  MeasuredLinks links;         // between its devices; what was not measured is Topology::links.host
  int64_t memory_bytes = 0;    // for what its devices keep there; 0: unknown, not checked
};

// Of devices of a worker that registers with no folder, or with one.
inline Disk DiskOf(bool gpu, bool no_folder) {
  return gpu ? Disk::kOfGpu : no_folder ? Disk::kNoFolder : Disk::kPerhaps;
}

enum class LinkClass : uint8_t { kDevice, kHost, kNetwork, kSlow };  // kDevice: with itself
inline constexpr size_t kLinkClassCount = 4;
std::string_view LinkClassName(LinkClass link);  // "device", "host", "network", "slow"

// Between the hosts of two groups, in either direction.
struct SlowLink {
  std::string from;
  std::string to;
  LinkCost cost;
};

// Per device and direction, where nothing was measured. The defaults are those of shared memory on
// one host and of TCP.
struct Links {
  LinkCost host = {5e-6, 1e-10};
  LinkCost network = {20e-6, 5e-10};
  std::vector<SlowLink> slow;
};

struct Topology {
  // In placement order: devices of a worker and of a host are neighbours.
  std::vector<Device> devices;
  std::map<std::string, Host> hosts;  // by host id; a host that is not in it has the defaults
  Links links;

  // `count` devices on one host, for dry runs and tests.
  static Topology Local(int count, int devices_per_worker = 1);

  // Never null. REQUIRES: an index of `devices`.
  const DeviceProfile& ProfileOf(size_t device) const;
};

// Gives hosts the links that their workers measured, of several the median: a virtual machine can
// have a bad second while one of them measures. To be called once, when devices and hosts are
// complete.
void TakeMeasuredLinks(Topology& topology);

// Gives devices their part of what the host has, where their profiles know it (the median of those
// of a host's workers): of the memory's rate as many devices at once as there are, and cores for
// them; of the cores' own rates, which fall while other cores compute. Programs are SPMD, so what
// streams at the end of a step streams on all devices at the same time; stages of a pipeline may
// find more than that. To be called once, when devices and hosts are complete.
void ShareHost(Topology& topology);

}  // namespace meshwright::mesh
