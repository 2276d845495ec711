// What an observer of one device waits for until another makes it happen: that two things run
// beside each other is shown by one that cannot end before the other.
//
// Thread rule: thread-safe.
#pragma once

#include <chrono>

#include "base/mutex.h"

namespace meshwright::testing {

class Awaited {
 public:
  void Happen() {
    const MutexLock lock(mutex_);
    happened_ = true;
    changed_.NotifyAll();
  }

  // Only once for what never comes: it is late from then on.
  void Await() {
    const MutexLock lock(mutex_);
    const auto due = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!happened_ && !late_ && changed_.WaitUntil(mutex_, due)) continue;
    if (!happened_) late_ = true;
  }

  bool late() const {
    const MutexLock lock(mutex_);
    return late_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool happened_ MW_GUARDED_BY(mutex_) = false;
  bool late_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::testing
