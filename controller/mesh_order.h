// The order of a mesh: a job's plan on the workers whose devices its run has.
//
// Thread rule: pure functions.
#pragma once

#include "controller/core_options.h"
#include "controller/job_book.h"
#include "controller/membership.h"
#include "controller/mesh_state.h"
#include "controller/run_record.h"

namespace meshwright::controller {

// One member per worker, in rank order. REQUIRES that the job has a run, which has a rank for each
// device of the plan, on workers that are connected.
MeshOrder MakeMeshOrder(MeshGeneration gen, const JobEntry& job, PlannedJob plan,
                        const Membership& workers, const CoreOptions& options);

// By what a member of the mesh shows that it may have files of its job's checkpoints here. The same
// in every life of the controller.
std::string FilesKeyOf(MeshGeneration gen, const CoreOptions& options);

// Where a job's checkpoints go when it runs on these workers: where it says; else below the first
// root of its workers, or with the controller where one of them has none. What it has saved before
// stays where it is.
ir::FolderRef CheckpointFolderOn(const JobEntry& job, const Membership& workers);

// The same of a run that an earlier controller began: its members have no sessions yet, and have
// loaded their programs. REQUIRES that the job has this run.
MeshOrder MakeMeshOrder(const RunRecord& run, const JobEntry& job);
// What of a run is to be on disk. REQUIRES that the job has the run that the order is of.
RunRecord RecordOf(const MeshOrder& order, const JobEntry& job);

}  // namespace meshwright::controller
