// The cluster as the planner sees it: hosts, their workers and devices, and what links cost. A
// snapshot of the membership, or a hypothetical cluster for a dry run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::mesh {

struct Device {
  std::string worker;        // worker name
  int local_index = 0;       // on that worker
  std::string host;          // host id
  int64_t memory_bytes = 0;  // 0: unknown, not checked
  double flops = 5e10;       // fp32 multiply-adds x 2 per second
};

struct Topology {
  std::vector<Device>
      devices;  // in placement order: devices of a worker and of a host are neighbours

  // `count` devices on one host, for dry runs and tests.
  static Topology Local(int count, int devices_per_worker = 1);
};

}  // namespace meshwright::mesh
