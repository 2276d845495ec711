// Steps of the core about clients: what they ask is work for the run of their job.
//
// Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

void On(const AttachClient& event, CoreState& core, Context& context);
void On(const AskOfClient& event, CoreState& core, Context& context);
void On(const AckOfClient& event, CoreState& core, Context& context);
void On(const ClientGone& event, CoreState& core, Context& context);
// Ends jobs that nobody came to drive.
void CheckClients(CoreState& core, Context& context);

}  // namespace meshwright::controller
