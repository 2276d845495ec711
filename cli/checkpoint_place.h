// Where a checkpoint is that somebody names: a folder of checkpoints, one of them, or a job.
//
// Thread rule: any; they read folders, and for a job ask the controller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/reader.h"
#include "cli/args.h"
#include "client/checkpoints.h"
#include "client/client.h"
#include "ir/checkpoint_spec.h"

namespace meshwright::cli {

struct CheckpointPlace {
  std::string folder;  // of checkpoints: a path of this machine, or of the controller's
  int64_t step = -1;   // of one of them
  // With the controller, of this job; null: they are on this machine.
  std::shared_ptr<client::Checkpoints> remote = nullptr;
  int64_t job = 0;
  ir::FolderRef below = {};  // of such ones: the folder below the controller's root
  std::string path() const;
};

// Steps of the checkpoints there, newest first. Errors: those of the folder or the controller.
Result<std::vector<int64_t>> StepsOf(const CheckpointPlace& place);
// The one of its step. Errors: those of checkpoint::Reader, naming it.
Result<std::unique_ptr<checkpoint::Reader>> OpenCheckpoint(const CheckpointPlace& place);
// Errors: kNotFound.
Status RemoveCheckpoint(const CheckpointPlace& place);

// The folder that `place` is or lies in; a number that is no folder is the id of a job. Errors:
// kNotFound: there is no such folder, or the job keeps none; or it is neither on this machine nor
// with the controller, and where it is.
Result<CheckpointPlace> FindCheckpoints(const std::string& place, const GlobalArgs& global);
// Those of a job. Errors: as FindCheckpoints.
Result<CheckpointPlace> CheckpointsOfJob(int64_t id, const GlobalArgs& global);
// One of them: that of `step`, that which `place` is, or the newest. Errors: kNotFound, which names
// the steps that there are.
Result<CheckpointPlace> FindCheckpoint(const std::string& place, int64_t step,
                                       const GlobalArgs& global);

// The folder as workers or the controller know it. controller_root: its checkpoint root. Errors:
// kNotFound naming the checkpoint roots: it lies below none of them.
Result<ir::FolderRef> BelowRoot(const std::string& folder,
                                const std::vector<client::WorkerInfo>& workers,
                                const std::string& controller_root);

}  // namespace meshwright::cli
