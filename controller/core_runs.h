// Steps of the core about runs: from the queue to devices, a plan, a mesh, its work, its end.
//
// Here what a mesh says becomes news of its job, and here a run that failed is judged
// (controller/run.h). Thread rule: the core's thread.
#pragma once

#include <vector>

#include "controller/core_state.h"

namespace meshwright::controller {

// Gives devices to those at the head of the queue, as far as there are any.
void PlaceJobs(CoreState& core, Context& context);

void On(const PlanFinished& event, CoreState& core, Context& context);
void On(const WeightsFile& event, CoreState& core, Context& context);
void On(const CommittedHere& event, CoreState& core, Context& context);

// What happens to a mesh, and all that follows from it. Nothing, where there is no such generation.
// May erase the mesh. Those that do not let go of it count as lost.
std::vector<DeafMember> Feed(MeshGeneration gen, const MeshInput& input, CoreState& core,
                             Context& context);
// Whoever has work for the job's mesh is asked, while it has room.
void GiveWork(JobEntry& job, CoreState& core, Context& context);
// Saves that are due by time, of jobs that are saved by time.
void RequestSaves(CoreState& core, Context& context);
// The good end of what clients drive: what others asked is carried out first.
void CloseRun(JobEntry& job, CoreState& core, Context& context);
// The one end of a run that does not end well. REQUIRES a run; its mesh, if it has one, lets go of
// its devices by itself.
void FailRun(JobEntry& job, const proto::RuntimeError& cause, CoreState& core, Context& context);
// Another run of a job, on these devices, by a plan that is there.
void BeginRunAgain(JobEntry& job, const std::vector<RankPlace>& ranks, const PlannedJob& plan,
                   CoreState& core, Context& context);
// The job's end, well or with a cause, whether it runs or waits.
void EndJob(JobEntry& job, const proto::RuntimeError& cause, CoreState& core, Context& context);

}  // namespace meshwright::controller
