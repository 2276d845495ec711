// Steps of the core about jobs that have failed for good and keep checkpoints: what is in the
// memory of workers and in no checkpoint is saved before the job ends.
//
// Such a job gets one more run, by the plan that it had: it restores, saves, and runs no step
// (controller/last_save.h). Whatever goes wrong with it, or takes longer than
// CoreOptions::last_save_ms, ends the job as it would have ended. Thread rule: the core's thread.
#pragma once

#include <string>

#include "controller/core_state.h"

namespace meshwright::controller {

// Whether the job has failed for good, and its next run, or the one that it has, is its last.
bool IsLastRun(const JobEntry& job);

// True: it is saved first, and ends then. False: there is nothing to save. REQUIRES a run.
bool EndBehindLastSave(JobEntry& job, const proto::RuntimeError& cause, CoreState& core,
                       Context& context);
// Workers have said what they hold: its last run begins, once there are devices, or the job ends.
// REQUIRES IsLastRun, and no run.
void TryLastSave(JobEntry& job, CoreState& core, Context& context);
// Its last run works. REQUIRES IsLastRun.
void BeginLastSave(JobEntry& job, CoreState& core, Context& context);

// Ends, of jobs with IsLastRun: behind the save, and without it.
void EndSaved(JobEntry& job, CoreState& core, Context& context);
void EndUnsaved(JobEntry& job, const std::string& why, CoreState& core, Context& context);

}  // namespace meshwright::controller
