// What a mesh is told of its job's checkpoints: where they go, what is said of them, and which one
// it starts from.
//
// Thread rule: values, pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "controller/save_table.h"
#include "ir/job.h"

namespace meshwright::controller {

struct CheckpointOrder {
  ir::FolderRef folder;       // of the job's checkpoints; path empty: it keeps none
  int64_t keep = 0;           // newest ones, two at least; 0: all
  int64_t unheard = 0;        // may be there without being on record
  checkpoint::Manifest head;  // what is said of each, without step, time, files and tensors
  std::string job;            // the request, as bytes
  std::string export_dtype;   // of weights beside the save at the end; empty: none
  ir::StartPoint start;       // that its state is restored from
  int64_t recorded = -1;      // the newest step on record, when a mesh is taken up
};

// What members of a mesh may have of checkpoints that lie with the controller: those of the job to
// write and to read, and the one that it started from to read.
struct MeshFiles {
  MeshGeneration gen{0};
  ir::FolderRef folder;
  ir::FolderRef start;
};

// Where the checkpoints of a job go: as it says, else below the name and the id of the job. Path
// empty: it keeps none.
ir::FolderRef CheckpointFolderOf(const ir::JobRequest& request, int64_t job_id);

// folder: where they go in this run.
CheckpointOrder MakeCheckpointOrder(const ir::JobRequest& request, int64_t job_id,
                                    const ir::FolderRef& folder, const std::string& layout,
                                    const ir::StartPoint& start);

// The save of launch `seq`, behind which `step` steps are done.
SaveRequest MakeSaveRequest(const CheckpointOrder& order, uint64_t mesh_gen, LaunchSeq seq,
                            int64_t step, const std::string& cause, int64_t unix_ms);

}  // namespace meshwright::controller
