#include "client/watch_again.h"

#include <algorithm>

#include "client/reconnect.h"

namespace meshwright::client {

Result<proto::JobInfo> WatchAgain(const WatchOnce& once, int64_t timeout_ms, int64_t patience_ms,
                                  const Pause& pause, const Clock& clock) {
  WatchProgress progress;
  Reconnect reconnect(patience_ms, clock);
  const Deadline due = Deadline::After(timeout_ms, clock);
  while (true) {
    const int64_t told = progress.updates;
    const int64_t rest_ms = timeout_ms == 0 ? 0 : std::max<int64_t>(1, due.remaining_ms());
    const Status end = once(progress, rest_ms);
    const bool over = end.ok() || progress.stopped ||
                      (end.code() == StatusCode::kDeadlineExceeded && timeout_ms > 0);
    if (over && progress.last) return *progress.last;
    if (end.ok()) return Fail(Internal("the controller told nothing of the job"));
    if (end.code() != StatusCode::kUnavailable || !progress.last) return Fail(end);
    std::optional<int64_t> wait_ms = reconnect.PauseAfter(progress.updates > told);
    if (!wait_ms) return Fail(end);
    if (timeout_ms > 0 && due.expired()) return *progress.last;
    // One that has just died needs a moment to be back.
    pause(std::max<int64_t>(*wait_ms, 20));
  }
}

}  // namespace meshwright::client
