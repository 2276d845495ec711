// CallGate: who is inside a call of NCCL, so that an abort can wait until nobody is.
//
// NCCL does not promise that a communicator may be aborted while another thread is inside a call on
// it. Calls do not block, so that the gate empties within microseconds; a thread that is stuck in
// one nevertheless is not waited for longer than the abort's deadline.
//
// Thread rule: thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

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
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    return empty_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                           [this] { return inside_ == 0; });
  }

 private:
  bool Enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    inside_ += closed_ ? 0 : 1;
    return !closed_;
  }
  void Leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
  }

  std::mutex mutex_;  // leaf lock
  std::condition_variable empty_;
  int inside_ = 0;
  bool closed_ = false;
};

}  // namespace meshwright::collective::nccl
