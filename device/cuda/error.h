// CUDA's error codes as Status.
//
// Most errors concern the call that returns them. Sticky ones mean that the context is lost: every
// later call of the process on that device fails, whatever it is. Such a device is poisoned: its
// first sticky error is the answer to everything, and only another process can use the GPU again.
// That is known of a GPU, not of who uses it: whoever opens it later gets the same answer.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "device/cuda/driver.h"

namespace meshwright::device::cuda {

// Lost contexts, hardware that failed, and what CUDA cannot explain: errors after which its
// documentation asks for another process, or after which no later call has been seen to succeed.
bool IsSticky(Code code);

// Why a GPU cannot be used by this process any more.
class Poison {
 public:
  bool taken() const { return taken_.load(std::memory_order_acquire); }
  // The first cause stays. REQUIRES one that is not OK.
  void Take(const Status& cause);
  // OK or the cause.
  Status cause() const;

 private:
  std::atomic<bool> taken_{false};
  mutable Mutex mutex_;
  Status cause_ MW_GUARDED_BY(mutex_);
};

// That of a device of a driver: one for all who use it, as long as the process lives.
std::shared_ptr<Poison> PoisonOf(const Driver& driver, int32_t device);
// For drivers that end before the process: another one may get their address.
void ForgetPoison(const Driver& driver);

class ErrorState {
 public:
  ErrorState(Driver& driver, int32_t device, std::string name)
      : driver_(driver), name_(std::move(name)), poison_(PoisonOf(driver, device)) {}

  // OK, or "cuda:0: WHAT: cudaErrorIllegalAddress (an illegal memory access was encountered)".
  // kResourceExhausted for out of memory, kUnavailable for sticky errors, else kInternal. Keeps a
  // sticky one; afterwards it is the answer to every code.
  Status Check(Code code, std::string_view what);
  // The device is not to be used any more for another reason than an error of CUDA.
  void GiveUp(const Status& cause) { poison_->Take(cause); }
  // OK or the sticky error.
  Status status() const { return poison_->taken() ? poison_->cause() : OkStatus(); }

 private:
  Driver& driver_;
  const std::string name_;
  const std::shared_ptr<Poison> poison_;
};

}  // namespace meshwright::device::cuda
