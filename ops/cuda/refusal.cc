#include "ops/cuda/refusal.h"

#include <mutex>
#include <set>
#include <string>

#include "base/log.h"

namespace meshwright::ops::cuda {

bool MayDoWithout(const Status& refusal, const device::cuda::CudaDevice& device, bool expected) {
  if (!device.status().ok()) return false;
  if (expected && refusal.code() == StatusCode::kUnimplemented) return true;
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard<std::mutex> lock(mutex);
  if (said.emplace(refusal.message()).second) {
    LogWarn(std::string(refusal.message()) + "; kernels of our own take its place");
  }
  return true;
}

}  // namespace meshwright::ops::cuda
