#include "planner/plan_memory.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/parallel.h"

namespace meshwright::planner {

int64_t SpareBytes(const mesh::Topology& topology, std::span<const DeviceMemory> devices) {
  constexpr int64_t kKeptParts = 8;
  MW_CHECK(devices.size() <= topology.devices.size())
      << "the memory of " << devices.size() << " devices of " << topology.devices.size();
  int64_t spare_bytes = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < devices.size(); ++i) {
    const int64_t all = topology.devices[i].memory_bytes;
    spare_bytes = std::min(spare_bytes, all - all / kKeptParts - devices[i].total_bytes);
  }
  return devices.empty() ? 0 : std::max<int64_t>(spare_bytes, 0);
}

void MeasureMemory(Plan& plan) {
  constexpr int64_t kDevicesPerThread = 8;
  plan.memory.resize(plan.Main().size());
  ParallelItems(static_cast<int64_t>(plan.memory.size()), kDevicesPerThread, [&](int64_t device) {
    const auto i = static_cast<size_t>(device);
    std::vector<const ir::Program*> of_device;
    for (const auto& [name, programs] : plan.programs) of_device.push_back(&programs[i]);
    plan.memory[i] = PeakMemory(of_device);
  });
}

std::vector<DeviceMemory> MemoryOfDevices(const Plan& plan) {
  std::vector<DeviceMemory> all(static_cast<size_t>(plan.layout.device_count()));
  for (size_t i = 0; i < plan.memory.size(); ++i) {
    const ir::Program& program = plan.Main()[i];
    std::fill_n(all.begin() + program.device.value(), plan.DevicesOf(program), plan.memory[i]);
  }
  return all;
}

Status CheckMemory(const Plan& plan, const mesh::Topology& topology) {
  const std::vector<DeviceMemory> needs = MemoryOfDevices(plan);
  std::vector<DeviceIndex> of;
  for (size_t device = 0; device < needs.size(); ++device) {
    of.push_back(DeviceIndex(static_cast<int32_t>(device)));
    MW_TRY(CheckDeviceMemory(topology, of.back(), needs[device].total_bytes, plan.layout));
  }
  return CheckFarMemory(topology, needs, of);
}

}  // namespace meshwright::planner
