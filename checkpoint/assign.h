// Who writes what: every box of the state once, spread over the devices that hold it.
//
// A box that several devices hold in common is written by one of them, chosen by a hash of its
// tensor and place: with "the first" one host would write everything. A tensor that several stages
// hold, each cut in its own way, is taken from one of these stages; of one of which each holds some
// rows, all stages write theirs.
//
// Thread rule: pure. REQUIRES programs by device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ir/program.h"

namespace meshwright::checkpoint {

// A box of the state and the devices that hold it; together these boxes are all of the state, once.
struct StateBox {
  std::string tensor;  // also the name of the persistent slot
  std::string key;     // tensor and box, for hashes
  int64_t bytes = 0;
  std::vector<size_t> holders;  // ascending
  friend bool operator==(const StateBox&, const StateBox&) = default;
};
std::vector<StateBox> StateBoxes(const std::vector<ir::Program>& programs);

// Per device the names of persistent slots whose box it writes.
std::vector<std::vector<std::string>> AssignBoxes(const std::vector<ir::Program>& programs);

// Who keeps which boxes in its snapshots: of each box 1 + copies workers, by a hash of box and
// worker, and on each of them one of its devices. Of a box that fewer hold, others get copies.
struct BoxCopy {
  std::string key;       // of the box
  std::string from, to;  // workers
};
struct SnapshotPlan {
  std::vector<std::vector<std::string>> slots;  // by device
  std::vector<BoxCopy> copies;
};
// worker_of: by device. Workers are any names. keepers: others, which get copies where these are
// too few.
SnapshotPlan PlanSnapshots(const std::vector<StateBox>& boxes,
                           const std::vector<std::string>& worker_of, int64_t copies,
                           const std::set<std::string>& keepers = {});

}  // namespace meshwright::checkpoint
