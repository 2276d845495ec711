// The memory of the devices of a plan whose programs are made. Room-internal to planner/plan.
//
// Thread rule: pure functions on the caller's plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "mesh/topology.h"
#include "planner/memory.h"
#include "planner/plan.h"

namespace meshwright::planner {

// Fills plan.memory from its programs.
void MeasureMemory(Plan& plan);

// Of every device of the layout. Program i runs on device i of the topology, or stands for several.
std::vector<DeviceMemory> MemoryOfDevices(const Plan& plan);

// What every device has left beside what it needs, device i as devices[i] says; an eighth of each
// is not counted, for what plans do not know. 0 where a device's memory is not known.
int64_t SpareBytes(const mesh::Topology& topology, std::span<const DeviceMemory> devices);

// Errors: kResourceExhausted naming device, need and budget.
Status CheckMemory(const Plan& plan, const mesh::Topology& topology);

}  // namespace meshwright::planner
