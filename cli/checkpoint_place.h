// Where a checkpoint is that somebody names: a folder of checkpoints, one of them, or a job.
//
// Thread rule: any; they read folders, and for a job ask the controller.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/args.h"
#include "client/client.h"
#include "ir/checkpoint_spec.h"

namespace meshwright::cli {

struct CheckpointPlace {
  std::string folder;  // of checkpoints
  int64_t step = -1;   // of one of them
  std::string path() const;
};

// The folder that `place` is or lies in; a number that is no folder is the id of a job. Errors:
// kNotFound: there is no such folder, or the job keeps none; or it is not on this machine, and
// where it is.
Result<CheckpointPlace> FindCheckpoints(const std::string& place, const GlobalArgs& global);
// One of them: that of `step`, that which `place` is, or the newest. Errors: kNotFound, which names
// the steps that there are.
Result<CheckpointPlace> FindCheckpoint(const std::string& place, int64_t step,
                                       const GlobalArgs& global);

// The folder as workers know it. Errors: kNotFound naming their checkpoint roots: it lies below
// none of them.
Result<ir::FolderRef> BelowRoot(const std::string& folder,
                                const std::vector<client::WorkerInfo>& workers);

}  // namespace meshwright::cli
