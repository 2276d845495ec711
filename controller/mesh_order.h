// The order of a mesh: a job's plan on the workers whose devices its run has.
//
// Thread rule: a pure function.
#pragma once

#include "controller/core_options.h"
#include "controller/job_book.h"
#include "controller/membership.h"
#include "controller/mesh_state.h"

namespace meshwright::controller {

// One member per worker, in rank order. REQUIRES that the job has a run, which has a rank for each
// device of the plan, on workers that are connected.
MeshOrder MakeMeshOrder(MeshGeneration gen, const JobEntry& job, PlannedJob plan,
                        const Membership& workers, const CoreOptions& options);

}  // namespace meshwright::controller
