// The memory of a plan's devices, and whether they have it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "mesh/topology.h"
#include "planner/memory.h"
#include "planner/plan.h"

namespace meshwright::planner {

// Sets plan.memory from its programs.
void MeasureMemory(Plan& plan);

// Per device of the layout: program i runs on device i of the topology, or stands for several.
std::vector<DeviceMemory> MemoryOfDevices(const Plan& plan);

// What every device has left beside what it needs, device i as devices[i] says; an eighth of each
// is not counted, for what plans do not know. 0 where a device's memory is not known.
int64_t SpareBytes(const mesh::Topology& topology, std::span<const DeviceMemory> devices);

// That devices, their hosts and disks have what the plan needs. Errors: kResourceExhausted.
Status CheckMemory(const Plan& plan, const mesh::Topology& topology);

}  // namespace meshwright::planner
