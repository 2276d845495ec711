// What a plan decides beside its layout: memories, overlap, how much the host renews. Saved plans
// and rehearsals take it as pins.
//
// Thread rule: pure functions.
#pragma once

#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"

namespace meshwright::planner {

// Writes Plan::decided of a plan of `asked`, which is `job` with what was resolved, and a note
// where the host's share was open.
void WriteDecided(const ir::JobRequest& job, const ir::JobRequest& asked,
                  const mesh::Topology& topology, Plan& plan);

// Pins it.
void PinMemories(const Plan& plan, ir::ParallelSpec& spec);

}  // namespace meshwright::planner
