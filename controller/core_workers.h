// Steps of the core about workers: who comes, who goes, and what becomes of what ran there.
//
// Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

void On(const WorkerMessage& event, CoreState& core, Context& context);
void On(const SessionClosed& event, CoreState& core, Context& context);
// Who is silent for too long is lost.
void CheckLiveness(CoreState& core, Context& context);
// The same for those that do not let go of a mesh.
void LoseDeaf(const std::vector<DeafMember>& deaf, CoreState& core, Context& context);

}  // namespace meshwright::controller
