// When a job's state is saved, where, and what a job starts from.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/dtype.h"

namespace meshwright::ir {

// The root of the controller, which workers reach through it. No worker's root has this name.
inline constexpr const char* kControllerRoot = "controller";

// A folder below a checkpoint root of workers: `worker --checkpoint-root NAME=PATH`.
struct FolderRef {
  std::string root;  // empty: the first one that a worker has; or kControllerRoot
  std::string path;  // relative: "gpt-bytes/7"
  bool at_controller() const { return root == kControllerRoot; }
  friend bool operator==(const FolderRef&, const FolderRef&) = default;
};

// Errors: kInvalidArgument: it is absolute, leads upwards, is longer than 1,024 bytes or has
// control characters.
Status CheckFolder(const FolderRef& folder);

struct CheckpointSpec {
  bool enable = false;
  FolderRef folder;                  // path empty: "NAME/ID" of the job
  int64_t interval = 500;            // steps; 0: not by steps
  int64_t interval_s = 0;            // 0: not by time
  int64_t keep_latest_k = 10;        // 0: all
  bool waits = false;                // with the next step, until a save is written
  bool last_save_in_hf = false;      // the save at the end has the weights as hf/, too
  DType export_dtype = DType::kF32;  // of these
  std::string keep_best = {};        // metric (ir/metric.h) whose best save stays; empty: none
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

// A checkpoint that a job goes on from.
struct StartPoint {
  FolderRef checkpoint;              // of one step
  int64_t step = -1;                 // that many are done; below 0: the job starts anew
  std::vector<std::string> exclude;  // patterns of tensors that start anew
  bool empty() const { return step < 0; }
  friend bool operator==(const StartPoint&, const StartPoint&) = default;
};

}  // namespace meshwright::ir
