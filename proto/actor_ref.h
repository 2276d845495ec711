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

}  // namespace meshwright::proto
