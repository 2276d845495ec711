// What a worker reports of a launch.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "ir/step_record.h"
#include "proto/errors.h"
#include "proto/snapshot_messages.h"
#include "proto/tensors.h"

namespace meshwright::proto {

// How long a rank was at a step, but for what it waited for others.
struct RankSeconds {
  int32_t rank = 0;
  double seconds = 0;
  friend bool operator==(const RankSeconds&, const RankSeconds&) = default;
};

struct StepReport {
  int64_t step = 0;
  double seconds = 0;
  std::map<std::string, double> values;  // empty unless the reporting device is here
  std::vector<RankSeconds> busy = {};    // of the worker's ranks of which it is known
  friend bool operator==(const StepReport&, const StepReport&) = default;
};

struct LaunchDone {
  MeshGeneration mesh_gen{0};
  LaunchSeq launch_seq{0};
  RuntimeError error;
  std::vector<StepReport> reports;       // one per step, in order; empty after an error
  std::vector<TensorTile> tensors = {};  // that this worker's devices hold, where asked for
  SnapshotTaken snapshot = {};
  std::vector<ir::StepRecord> recorded = {};  // of its ranks, the steps that were asked for
  ir::ClockRound round = {};                  // arrived_ns is the controller's to say
  int64_t begin_ns = 0;                       // it came to the launch, by the worker's clock
  friend bool operator==(const LaunchDone&, const LaunchDone&) = default;
};

}  // namespace meshwright::proto
