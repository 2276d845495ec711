#include "worker/first_cause.h"

#include "base/check.h"

namespace meshwright::worker {

void FirstCause::Record(const Status& cause) {
  MW_CHECK(!cause.ok());
  {
    const MutexLock lock(mutex_);
    if (!cause_.ok()) return;
    cause_ = cause;
    stopped_.store(true, std::memory_order_release);
  }
  fabric_.Abort(cause);
}

Status FirstCause::status() const {
  {
    const MutexLock lock(mutex_);
    if (!cause_.ok()) return cause_;
  }
  return fabric_.status();
}

}  // namespace meshwright::worker
