// Steps of the core about workers that give their work away: told to by an operator, on their way
// out, or since their machine fails (controller/standings.h).
//
// A worker that drains gets nothing new. Its jobs that can be halted do, and go on elsewhere; as
// long as the next run of one reads in its memory, it stays. At the deadline what is left is ended,
// and recovers where it may. Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

void On(const OrderWorker& event, CoreState& core, Context& context);

// Carries drains on: asks jobs to go, ends those that are late, and says when nothing is left.
void DrainWorkers(CoreState& core, Context& context);

// A run has failed. Where the machine of a worker is to blame, and was before, it is quarantined.
// is_own: it has turned out to be the job's doing.
void NoteHostFault(JobId job, const proto::RuntimeError& cause, bool is_own, CoreState& core,
                   Context& context);

}  // namespace meshwright::controller
