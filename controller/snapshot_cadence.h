// SnapshotCadence: behind which steps of a training the state is copied into the memory of workers.
//
// Every `every` steps, or, where the job leaves it open, as often as copies take at most a fiftieth
// of the time of the steps: both are measured with every snapshot, and no launch is cut short for
// it. One snapshot is under way at a time: the one before it stays until this one is known to be
// whole everywhere.
//
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/messages.h"

namespace meshwright::controller {

class SnapshotCadence {
 public:
  static constexpr double kMostOfTime = 0.02;

  SnapshotCadence() = default;  // never
  // every: steps; 0: never, below 0: by cost.
  SnapshotCadence(int64_t every, int64_t start);

  // The number of steps behind which the next one is due, more than `steps`; nothing: there is none
  // for now.
  std::optional<int64_t> Due(int64_t steps) const;
  // Whether a launch ends where one is due; else it comes with the launch that gets there.
  bool CutsLaunches() const { return !by_cost_ || halting_; }
  void Begin(int64_t steps);
  // step_seconds: of one step of its launch. A snapshot that failed is the last one.
  void End(const proto::SnapshotTaken& taken, double step_seconds);

  // The run is to end behind a snapshot of its last step: one is due with the very next step.
  void Halt() { halting_ = true; }
  void GoOn() { halting_ = false; }
  // So many steps are done, and the halt waits: for another step, or for a snapshot under way.
  bool HaltWaits(int64_t steps) const {
    return halting_ && every_ != 0 && (under_way_ || whole_ != steps);
  }
  bool WantsStep(int64_t steps) const { return HaltWaits(steps) && !under_way_; }

 private:
  int64_t every_ = 0;
  bool by_cost_ = false;
  int64_t last_ = 0;
  bool under_way_ = false;
  int64_t whole_ = -1;  // the newest one that is
  bool halting_ = false;
  // Of the last ones: the first ones take longer, since their memory is new.
  double seconds_[3] = {0, 0, 0};
  int64_t ended_ = 0;
};

}  // namespace meshwright::controller
