// The environments of a session: host actors that the controller spread over the workers, asked all
// at once.
//
// Thread rule: one thread. Ownership: the session outlives it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "turn.h"

namespace policy_gradient {

class Environments {
 public:
  // Errors: kNotFound: no worker has cart poles; why an actor could not begin.
  static meshwright::Result<Environments> Spawn(meshwright::client::Session& session,
                                                int64_t count);

  int64_t count() const { return static_cast<int64_t>(actors_.size()); }
  const std::vector<Seen>& seen() const { return seen_; }  // of the last turn, by environment

  // Environment i begins an episode that `seed` and i decide. Errors: the environments'.
  meshwright::Status Reset(uint64_t seed);
  // Environment i, if its pole stands, takes actions[i]. Errors: the environments'.
  meshwright::Status Push(const std::vector<int32_t>& actions);

 private:
  using Turns = std::vector<std::pair<size_t, Turn>>;  // by environment

  Environments(meshwright::client::Session& session,
               std::vector<meshwright::client::ActorRef> actors)
      : session_(&session), actors_(std::move(actors)), seen_(actors_.size()) {}
  // Asks all of them, then waits: they work side by side.
  meshwright::Status Take(const Turns& turns);

  meshwright::client::Session* session_;
  std::vector<meshwright::client::ActorRef> actors_;
  std::vector<Seen> seen_;
};

}  // namespace policy_gradient
