// Address: which actor is meant, and in which of its lives.
//
// A place is a process that holds actors (actor/place.h). An actor keeps its id for good; each
// restart begins a new generation. A message names the generation that its sender knew, so nothing
// that was meant for an earlier life reaches a later one: it is answered with GoneError.
//
// The five errors below are all the ways in which a question may end without the actor's own
// answer. Thread rule: values and pure functions.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace meshwright::actor {

using PlaceId = Id<struct PlaceTag, uint64_t>;  // one life of a process: never used again
using ActorId = Id<struct ActorTag, uint64_t>;  // within its place
using ActorGeneration = Id<struct ActorGenerationTag, uint64_t>;  // 1, 2, 3, ...

struct Address {
  PlaceId place{0};
  ActorId id{0};
  ActorGeneration generation{0};
  friend constexpr auto operator<=>(const Address&, const Address&) = default;
};

// "actor 7 (generation 2) of place 3"; place 0 is not named.
std::string ToString(const Address& address);

// kResourceExhausted: nothing happened; ask again when there is room.
Status FullError(const Address& address, size_t bound);
// kNotFound: the actor was restarted since, or never was. now: the living generation; 0: none.
Status GoneError(const Address& address, ActorGeneration now);
// kCancelled: it was stopped on purpose.
Status StoppedError(const Address& address);
// kAborted: it failed, or its process did; the question may have had its effect or not.
Status DeadError(const Address& address, const Status& cause);
// kDeadlineExceeded: as kAborted, but the actor may still be at it.
Status LateError(const Address& address, int64_t deadline_ms);

}  // namespace meshwright::actor
