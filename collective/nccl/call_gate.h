// CallGate: who is inside a call of NCCL, so that an abort can wait until nobody is.
//
// NCCL does not promise that a communicator may be aborted while another thread is inside a call on
// it. Calls do not block, so that the gate empties within microseconds; a thread that is stuck in
// one nevertheless is not waited for longer than the abort's deadline.
//
// Thread rule: thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace meshwright::collective::nccl {

class CallGate {
 public:
  // Held while calling. False: the gate is closed, and no call may be made.
  class Pass {
   public:
    explicit Pass(CallGate& gate) : gate_(gate), open_(gate.Enter()) {}
    ~Pass() {
      if (open_) gate_.Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const { return open_; }

   private:
    CallGate& gate_;
    const bool open_;
  };

  // No pass is given any more. True when all that were given are back within the time.
  bool Close(int64_t timeout_ms) {
    const MutexLock lock(mutex_);
    closed_ = true;
    const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (inside_ != 0 && empty_.WaitUntil(mutex_, due)) {
    }
    return inside_ == 0;
  }

 private:
  bool Enter() {
    const MutexLock lock(mutex_);
    inside_ += closed_ ? 0 : 1;
    return !closed_;
  }
  void Leave() {
    const MutexLock lock(mutex_);
    if (--inside_ == 0) empty_.NotifyAll();
  }

  Mutex mutex_;  // leaf lock
  CondVar empty_;
  int inside_ MW_GUARDED_BY(mutex_) = 0;
  bool closed_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::collective::nccl
