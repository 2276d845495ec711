#include "ops/cuda/refusal.h"

#include <set>
#include <string>

#include "base/log.h"
#include "base/mutex.h"

namespace meshwright::ops::cuda {

bool MayDoWithout(const Status& refusal, const device::cuda::CudaDevice& device, bool expected) {
  if (!device.status().ok()) return false;
  if (expected && refusal.code() == StatusCode::kUnimplemented) return true;
  static Mutex mutex;
  static std::set<std::string> said MW_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  if (said.emplace(refusal.message()).second) {
    LogWarn(std::string(refusal.message()) + "; kernels of our own take its place");
  }
  return true;
}

}  // namespace meshwright::ops::cuda
