// Lowers a partition and a schedule to one static program per device.
//
// Per stage the compute order is: zero accumulators, the schedule's forwards and backwards, the
// update rounds. A RECV stands right before the first piece that reads it, a SEND right after the
// piece that made its source; both sides list the transfers of a channel in the same order. Slots
// are freed after their last use and placed in the arena by first fit.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/program.h"
#include "mesh/topology.h"
#include "planner/layout.h"
#include "planner/pieces.h"
#include "planner/plan_scope.h"
#include "planner/schedule.h"

namespace meshwright::planner {

struct LowerInput {
  std::string name;  // "step"
  const Partition* partition = nullptr;
  const Layout* layout = nullptr;
  std::vector<StageSchedule> schedule;  // per stage
  int microbatches = 1;
  PlanScope scope = PlanScope::kAllDevices;
  ir::OverlapMode overlap = ir::OverlapMode::kByDevice;
  int64_t copies_bytes = 0;    // room for copies of what is in a farther memory (planner/tiers.h)
  int64_t ahead_bytes = 0;     // more room, for copies that come early
  bool keeps_weights = false;  // there is room for copies of all weights, too
  const mesh::Topology* topology = nullptr;  // whose devices hold the programs; null: not checked
};

// Programs in device order: device = first of the stage + d * tensor + t; with kOnePerStage the
// first of each stage, as if it exchanged its messages with the first ones of other stages.
// Errors: kResourceExhausted: a device has less memory than its program needs however its slots are
// placed, as CheckDeviceMemory.
Result<std::vector<ir::Program>> LowerToPrograms(const LowerInput& input);

// Every persistent slot of `program` is one that `init`, of the same device, fills.
// Errors: kInternal naming the slot.
Status CheckInitialized(const ir::Program& init, const ir::Program& program);

// The mesh of one stage: axes data and tensor with its devices.
mesh::Mesh StageMesh(const Layout& layout, int stage);

// Device that holds the reports: first of the last stage.
int ReportingDevice(const Layout& layout);

}  // namespace meshwright::planner
