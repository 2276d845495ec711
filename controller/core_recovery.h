// Steps of the core about jobs between two runs: what is kept of the run that failed, and when the
// next one begins.
//
// Thread rule: the core's thread.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "controller/core_state.h"

namespace meshwright::controller {

// The run has failed and another one shall follow. REQUIRES a run with a mesh.
void BeginRecovery(JobEntry& job, const proto::RuntimeError& cause, CoreState& core,
                   Context& context);

// What it may go on by at once: the plan that it had before it went on with fewer devices, the one
// that it has, one that was made ahead for fewer. REQUIRES a recovery.
std::optional<SeatedPlan> FindPlan(const JobEntry& job, const CoreState& core, Context& context);

// Gives jobs between two runs their devices, or the queue, where these do not come in time.
void RecoverJobs(CoreState& core, Context& context);

// Free devices that a job between two runs had: nobody else gets them, until it is planned anew.
std::set<std::pair<std::string, int>> KeptDevices(const CoreState& core);

// Where the next run starts; returns it in words: "from the snapshot of step 34". REQUIRES a
// recovery, and a run without a mesh.
std::string SetStart(JobEntry& job, Context& context);

// The run works: once it has done a step that is new, the recovery is over and told.
void NoteProgress(JobEntry& job, Context& context);

// There is no plan for so many devices, which are free again: it waits for others. REQUIRES that it
// was being planned anew.
void StopReplanning(JobEntry& job, size_t devices, const proto::RuntimeError& why, CoreState& core,
                    Context& context);

}  // namespace meshwright::controller
