// What controller and workers tell each other of host actors, as plain values.
//
// A job's actors on a worker live in one process of their own, which the worker starts for the
// first of them. The controller gives ids and generations. Every ActorMessage is answered by one
// ActorReply as long as the session lives: it carries the answer, and it is the credit to send
// another one. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "proto/actor_ref.h"

namespace meshwright::proto {

// A message with its payload must stay below kMaxMessageBytes.
inline constexpr size_t kMaxActorPayloadBytes = 3 << 20;

// ---- Down ---------------------------------------------------------------------------------------

struct SpawnActor {
  JobId job{0};
  uint64_t actor = 0;
  uint64_t generation = 0;
  std::string type;  // of the registry of the worker's binary
  std::string args;
  friend bool operator==(const SpawnActor&, const SpawnActor&) = default;
};

struct ActorMessage {
  JobId job{0};
  uint64_t actor = 0;
  uint64_t generation = 0;
  uint64_t ask = 0;   // repeated by the reply
  bool tell = false;  // the reply says only that its mailbox has it
  int64_t deadline_ms = 0;
  std::string payload;
  friend bool operator==(const ActorMessage&, const ActorMessage&) = default;
};

struct StopActor {
  JobId job{0};
  uint64_t actor = 0;  // 0: all of the job, and their process
  uint64_t generation = 0;
  friend bool operator==(const StopActor&, const StopActor&) = default;
};

// ---- Up -----------------------------------------------------------------------------------------

struct ActorReply {
  uint64_t ask = 0;
  StatusCode code = StatusCode::kOk;
  std::string message;  // of the status
  std::string payload;
  friend bool operator==(const ActorReply&, const ActorReply&) = default;
};

// kFailed: this life is over, or could not begin.
enum class ActorEventKind : uint8_t { kUnspecified = 0, kStarted = 1, kFailed = 2, kStopped = 3 };

struct ActorEvent {
  JobId job{0};
  uint64_t actor = 0;
  uint64_t generation = 0;
  ActorEventKind kind = ActorEventKind::kUnspecified;
  StatusCode code = StatusCode::kOk;  // why
  std::string message = {};
  friend bool operator==(const ActorEvent&, const ActorEvent&) = default;
};

}  // namespace meshwright::proto
