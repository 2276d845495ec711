// The address of a host actor.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

namespace meshwright::proto {

// How everybody but its worker names an actor.
struct ActorRef {
  std::string worker;  // where this life is; for people, the ids say it all
  uint64_t id = 0;
  uint64_t generation = 0;  // 0: whichever life it has when it is asked
  friend bool operator==(const ActorRef&, const ActorRef&) = default;
};

// What has become of an actor that somebody watched.
enum class ActorFate : uint8_t { kUnspecified = 0, kRestarted = 1, kStopped = 2, kGaveUp = 3 };

}  // namespace meshwright::proto
