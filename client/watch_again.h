// WatchAgain: a watch that goes on over another connection when one breaks, so that who watches
// misses nothing and hears nothing twice.
//
// What was told is counted by the controller, as records of the job's history: the next connection
// asks from there on. A controller that is restarted has the history, and tells again, by the same
// numbers, what it had not written down. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "proto/views.h"

namespace meshwright::client {

struct WatchProgress {
  int64_t steps = 0;  // records that the caller has
  int64_t lines = 0;
  std::optional<proto::JobInfo> last;  // what was told last; none: nothing yet
  bool stopped = false;                // the caller has heard enough
  int64_t updates = 0;
};

// Watches over one connection for at most timeout_ms (0: no limit): OK when the job has ended or
// the caller has heard enough.
using WatchOnce = std::function<Status(WatchProgress& progress, int64_t timeout_ms)>;
// Waits. Tests let it pass by itself.
using Pause = std::function<void(int64_t ms)>;

// What was known last. patience_ms: how long a controller that has told something may be away.
// Errors: those of the first connection; kUnavailable: it was away for longer.
Result<proto::JobInfo> WatchAgain(const WatchOnce& once, int64_t timeout_ms, int64_t patience_ms,
                                  const Pause& pause, const Clock& clock = SystemClock());

}  // namespace meshwright::client
