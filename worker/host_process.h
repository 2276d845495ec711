// The process in which a job's host actors live on a worker: a place of its own, with a thread for
// each actor, at the other end of the worker's socket (worker/actor_host.h).
//
// What an actor does cannot harm the worker: its memory, its crash and its loops are this
// process's. It ends when the socket does, and by itself where an actor is stuck: whoever waits for
// that one is told, then the process exits at once, since nothing else ends the actor's thread.
// Thread rule: main thread.
#pragma once

#include <cstdint>

#include "actor/address.h"
#include "actor/registry.h"
#include "base/unique_fd.h"

namespace meshwright::worker {

// The numbers of the two places of such a socket.
inline constexpr actor::PlaceId kWorkerPlace{1};
inline constexpr actor::PlaceId kHostPlace{2};

// With which the process exits because of a stuck actor.
inline constexpr int kStuckActorExit = 86;

// Serves until the other end closes. silent_ms: how long an actor may be at one message; 0: for
// ever. The exit code of the process.
int ServeHostActors(UniqueFd socket, const actor::Registry& registry, int64_t silent_ms);

}  // namespace meshwright::worker
