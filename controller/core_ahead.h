// Steps of the core about plans that are made before they are needed (controller/programs_ahead.h).
//
// While a job runs and nobody is being planned, the planner is asked what becomes of the job when
// one of its workers is gone for good and nothing free takes its place. A recovery then goes on by
// that plan, without planner and without waiting. One is asked for at a time, by a thread of its
// own: a job in the queue does not wait for it. Thread rule: the core's thread.
#pragma once

#include <optional>
#include <vector>

#include "controller/core_state.h"

namespace meshwright::controller {

// Asks for the next one that is wanted.
void PlanAhead(CoreState& core, Context& context);
void On(const PlannedAhead& event, CoreState& core, Context& context);

// The job begins a run by this plan: what was made for another one is dropped. REQUIRES a run.
void KeepProgramsFor(const PlannedJob& plan, JobEntry& job, CoreState& core);

// For a job between two runs: a plan made ahead, and free devices for it. The plan has no placement
// any more. REQUIRES a recovery.
std::optional<SeatedPlan> FindProgramAhead(const JobEntry& job, const CoreState& core);

// Free devices that a job between two runs may take: none that others have been promised.
std::vector<mesh::Device> DevicesForRecovery(const JobEntry& job, const CoreState& core);

}  // namespace meshwright::controller
