#include "collective/cpu/abort_latch.h"

#include "base/check.h"

namespace meshwright::collective {

bool AbortLatch::Record(const Status& cause) {
  MW_CHECK(!cause.ok()) << "an abort needs a cause";
  const MutexLock lock(mutex_);
  if (!cause_.ok()) {
    return false;
  }
  cause_ = cause;
  return true;
}

Status AbortLatch::status() const {
  const MutexLock lock(mutex_);
  return cause_;
}

}  // namespace meshwright::collective
