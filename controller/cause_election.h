// CauseElection: of the errors of a mesh, the one that its end is due to.
//
// A lost worker or an error that no peer's death explains beats one that it may explain; among
// equals the first one wins, and the rest are counted. What the user wants beats all: who is told
// that a job is cancelled must not see it go on after a failure. Thread rule: a value.
#pragma once

#include <cstdint>

#include "proto/messages.h"

namespace meshwright::controller {

class CauseElection {
 public:
  // REQUIRES an error.
  void Add(proto::RuntimeError error);
  // No better cause can come, or it had its time.
  bool IsSettled(int64_t waited_ms, int64_t election_ms) const;
  // The cause as it stands; OK before there was an error.
  const proto::RuntimeError& leader() const { return leader_; }
  // The cause, saying how many others followed from it.
  proto::RuntimeError Conclude() const;

 private:
  proto::RuntimeError leader_;
  int errors_ = 0;
};

}  // namespace meshwright::controller
