#include "mesh/topology.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::mesh {

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

}  // namespace meshwright::mesh
