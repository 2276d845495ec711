// FirstCause: why a job ended. The first recorded failure wins and stops the fabric, so that no
// device waits for another.
//
// Thread rule: thread-safe. Ownership: the fabric outlives it.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "base/status.h"
#include "collective/communicator.h"

namespace meshwright::worker {

class FirstCause {
 public:
  explicit FirstCause(collective::Fabric& fabric) : fabric_(fabric) {}

  // True once a cause is recorded; cheap enough to ask between any two kernels.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Keeps `cause` if it is the first, and aborts the fabric. REQUIRES a cause that is not OK.
  void Record(const Status& cause);

  // The recorded cause, else the fabric's, else OK.
  Status status() const;

  collective::Fabric& fabric() const { return fabric_; }

 private:
  collective::Fabric& fabric_;
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  Status cause_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
