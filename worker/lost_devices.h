// LostDevices: counts executors that lost a device one after another. The next executor gets a
// fresh context, which mends most devices; one that is lost again and again is broken, and so is a
// worker that goes on offering it.
//
// Thread rule: thread-safe.
#pragma once

#include <functional>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace meshwright::worker {

class LostDevices {
 public:
  // So many in a row, without a launch that went well between them, are reported.
  static constexpr int kMostInARow = 3;

  // report: told the last cause; called by who calls Lost().
  explicit LostDevices(std::function<void(const Status&)> report) : report_(std::move(report)) {}

  void Worked() {
    const MutexLock lock(mutex_);
    in_a_row_ = 0;
  }
  void Lost(const Status& cause) {
    {
      const MutexLock lock(mutex_);
      if (++in_a_row_ < kMostInARow) return;
      in_a_row_ = 0;
    }
    if (report_) report_(cause);
  }
  // A device that even the end of its process did not free.
  void LostForGood(const Status& cause) {
    if (report_) report_(cause);
  }

 private:
  const std::function<void(const Status&)> report_;
  Mutex mutex_;
  int in_a_row_ MW_GUARDED_BY(mutex_) = 0;
};

}  // namespace meshwright::worker
