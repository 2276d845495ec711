// The one failure of a fabric: the first cause wins and everything that waits sees it.
//
// Record() fixes the cause; Publish() makes waiting threads return it. The fabric tells its peers
// between the two, so that no survivor can leave its process before its peers were told whose death
// started it.
//
// Thread rule: thread-safe. Ownership: one per fabric, outlives its groups, channels and
// connections.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "base/status.h"

namespace meshwright::collective {

class AbortLatch {
 public:
  // True for the first cause. REQUIRES !cause.ok().
  bool Record(const Status& cause);
  // Wakes the waiters (they look at stopped() at least every wait slice). REQUIRES a recorded
  // cause.
  void Publish() { stopped_.store(true); }

  bool stopped() const { return stopped_.load(); }
  Status status() const;  // OK or the first cause

 private:
  mutable Mutex mutex_;  // leaf lock
  Status cause_ MW_GUARDED_BY(mutex_);
  std::atomic<bool> stopped_{false};
};

}  // namespace meshwright::collective
