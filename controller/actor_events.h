// What clients want of host actors, and what they hear: the part of controller/events.h that
// controller/actor_table.h speaks. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "controller/ids.h"
#include "proto/actor_messages.h"

namespace meshwright::controller {

// ---- Events -------------------------------------------------------------------------------------

// Answered once, with the ref of its first life.
struct SpawnActorCall {
  CallId call;
  JobId job;
  std::string type;
  std::string args;
  std::string worker;  // where; empty: the worker with the fewest actors that has the type
};
// Answered once. tell: as soon as its mailbox has it.
struct AskActorCall {
  CallId call;
  proto::ActorRef ref;
  std::string payload;
  int64_t deadline_ms = 0;
  bool tell = false;
};
// Answered once.
struct StopActorCall {
  CallId call;
  proto::ActorRef ref;
};
// Answered at every restart, and with the end of the actor, which is the last.
struct WatchActorCall {
  CallId call;
  proto::ActorRef ref;
};
// Ends a watch, without an answer.
struct UnwatchActor {
  CallId call;
};

// ---- Effects ------------------------------------------------------------------------------------

enum class ActorNews : uint8_t { kAnswer, kRestarted, kStopped, kGaveUp };

struct ActorAnswer {
  CallId call;
  Status status;        // of a watch: why; of a restart: why the life before ended
  proto::ActorRef ref;  // of a spawn and of a restart: the life that has begun
  std::string payload;  // of an ask
  ActorNews news = ActorNews::kAnswer;
  bool last = true;  // nothing follows for this call
};

}  // namespace meshwright::controller
