// What a client tells an environment and hears from it: the messages of the host actor "cart-pole",
// and their bytes. Both binaries of this example link it.
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "actor/codec.h"
#include "cart_pole.h"

namespace policy_gradient {

inline constexpr std::string_view kEnvironment = "cart-pole";  // the type of the actor

struct Seen {
  State state{};
  bool stands = false;
  friend bool operator==(const Seen&, const Seen&) = default;
};

// Begins an episode, or pushes the cart.
struct Turn {
  using Reply = Seen;
  enum class Kind : uint8_t { kReset, kPush };
  Kind kind = Kind::kReset;
  int64_t number = 0;  // of kReset: the seed; of kPush: the action
  friend bool operator==(const Turn&, const Turn&) = default;
};

// Of a turn: "reset 7", "push 1". Of what is seen: the state's doubles and a byte, since text would
// round them.
meshwright::actor::MessageCodec<Turn> TurnCodec();

}  // namespace policy_gradient
