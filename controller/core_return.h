// Steps of the core about jobs that go on with fewer devices than their plan had, and return to it.
//
// The plan is kept. Once devices for it are free, nobody waits, and the run has worked for a while,
// the run halts between two steps, and the next one is by that plan, without a search. It is no
// recovery. A host that comes and goes does not take its job with it: each return that does not
// last doubles the while. Thread rule: the core's thread.
#pragma once

#include <string>

#include "controller/core_state.h"

namespace meshwright::controller {

// The job begins a run by this plan: one that has more devices is kept, or is reached again.
// REQUIRES a run.
void KeepLargerPlan(const PlannedJob& plan, JobEntry& job, CoreState& core, Context& context);

// For a job between two runs: its larger plan, and free devices for it, unless somebody waits for
// devices. REQUIRES a recovery.
std::optional<SeatedPlan> FindLargerPlan(const JobEntry& job, const CoreState& core);

// Whether there is room for it as soon as the job's last run has let go of its devices. REQUIRES a
// recovery.
bool LargerPlanComes(const JobEntry& job, const CoreState& core);

// Halts the next job that may return to its plan.
void ReturnToPlans(CoreState& core, Context& context);

}  // namespace meshwright::controller
