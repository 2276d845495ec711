// Steps of the core about jobs as people know them: submitted, cancelled, restored.
//
// Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"
#include "controller/restored_jobs.h"

namespace meshwright::controller {

// A job that an earlier controller had: it is queued, or it ends.
void Restore(RestoredJob restored, CoreState& core, Context& context);

void On(const SubmitJob& event, CoreState& core, Context& context);
void On(const CancelJob& event, CoreState& core, Context& context);
// Jobs that have waited for their first devices as long as they were to end.
void EndLongWaits(CoreState& core, Context& context);
void On(const WriteFailed& event, CoreState& core, Context& context);

}  // namespace meshwright::controller
