// Steps of the core about runs that an earlier controller began.
//
// Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"
#include "controller/run_record.h"

namespace meshwright::controller {

// Whether workers may still have the run of a job of an earlier controller, which waits for them.
bool MayGoOn(const JobEntry& job);

// The run of a job that is STARTING, RUNNING or RECOVERING in the store. It waits for its workers,
// or the job recovers, or ends.
void RestoreRun(JobEntry& job, const RunRecord& record, CoreState& core, Context& context);

}  // namespace meshwright::controller
