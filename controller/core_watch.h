// Steps of the core about meshes that stand still and ranks that are slow: named in the job's log,
// its history and its metrics, and ended where nothing is at work any more.
//
// Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

// Where the devices of a worker's meshes are.
void HearMarks(const Worker& worker, const proto::Heartbeat& heartbeat, CoreState& core,
               Context& context);
// A launch of the mesh is done.
void WatchLaunched(MeshGeneration gen, const LaunchResult& launched, CoreState& core,
                   Context& context);
// Its run is over, and so is what was wrong with it.
void EndWatch(MeshGeneration gen, JobEntry& job, CoreState& core, Context& context);
void CheckStalls(CoreState& core, Context& context);

}  // namespace meshwright::controller
