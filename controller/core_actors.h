// Steps of the core about host actors: what controller/actor_table.h has to be told of jobs,
// ready workers and sessions, and who hears what it says.
//
// Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

ActorTableOptions ActorOptionsOf(const CoreOptions& options);
ActorWorkers ReadyActorWorkers(const Membership& members);
void Carry(ActorEffects effects, CoreState& core, Context& context);

void On(const SpawnActorCall& event, CoreState& core, Context& context);
void On(const AskActorCall& event, CoreState& core, Context& context);
void On(const StopActorCall& event, CoreState& core, Context& context);
void On(const WatchActorCall& event, CoreState& core, Context& context);
void On(const UnwatchActor& event, CoreState& core, Context& context);
// False: the message is not of an actor.
bool OnActorMessage(const Worker& worker, const proto::UpBody& body, CoreState& core,
                    Context& context);

}  // namespace meshwright::controller
