// Reconnect: when a connection that has ended is made again, and how often before it is given up.
//
// One that the controller had taken is made again at once; attempts that reach nobody follow after
// pauses that double up to two seconds. Time is counted from when a connection broke, not while one
// stood: a session may be silent for hours. Thread rule: one thread. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace meshwright::client {

class Reconnect {
 public:
  // The first connection is made now. patience_ms: how long it is tried; 0: once.
  Reconnect(int64_t patience_ms, const Clock& clock = SystemClock())
      : patience_ms_(patience_ms), clock_(clock), over_(Deadline::After(patience_ms, clock)) {}

  // The connection has ended now. taken: the controller had it. What to wait before the next one;
  // nothing: it was tried for long enough.
  std::optional<int64_t> PauseAfter(bool taken);

 private:
  const int64_t patience_ms_;
  const Clock& clock_;
  Deadline over_;
  int64_t pause_ms_ = 0;
};

}  // namespace meshwright::client
