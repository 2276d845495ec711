#include "device/cuda/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/mutex.h"

namespace meshwright::device::cuda {
namespace {

// A context that is invalid (201) or destroyed (709), a client that the multi-process service has
// ended (810), uncorrectable ECC and NVLink errors (214, 220), contained errors (226), illegal
// address (700), launch timeout (702), assert (710), the hardware's exceptions of 714 to 719,
// leaked tensor memory (721), a failed device of another kind (911), and what CUDA itself does not
// know (999).
constexpr std::array<Code, 18> kStickyCodes = {201, 214, 220, 226, 700, 702, 709, 710, 714,
                                               715, 716, 717, 718, 719, 721, 810, 911, 999};

struct Registry {
  Mutex mutex;
  std::map<std::pair<const Driver*, int32_t>, std::shared_ptr<Poison>> poisons MW_GUARDED_BY(mutex);
};

Registry& ThisProcess() {
  static Registry registry;
  return registry;
}

}  // namespace

bool IsSticky(Code code) {
  return std::find(kStickyCodes.begin(), kStickyCodes.end(), code) != kStickyCodes.end();
}

void Poison::Take(const Status& cause) {
  const MutexLock lock(mutex_);
  if (cause_.ok()) cause_ = cause;
  taken_.store(true, std::memory_order_release);
}

Status Poison::cause() const {
  const MutexLock lock(mutex_);
  return cause_;
}

std::shared_ptr<Poison> PoisonOf(const Driver& driver, int32_t device) {
  Registry& registry = ThisProcess();
  const MutexLock lock(registry.mutex);
  std::shared_ptr<Poison>& poison = registry.poisons[{&driver, device}];
  if (poison == nullptr) poison = std::make_shared<Poison>();
  return poison;
}

void ForgetPoison(const Driver& driver) {
  Registry& registry = ThisProcess();
  const MutexLock lock(registry.mutex);
  std::erase_if(registry.poisons, [&](const auto& entry) { return entry.first.first == &driver; });
}

Status ErrorState::Check(Code code, std::string_view what) {
  if (poison_->taken()) return poison_->cause();
  if (code == kSuccess) return OkStatus();
  const std::string text =
      fmt::format("{}: {}: {} ({})", name_, what, driver_.ErrorName(code), driver_.ErrorText(code));
  if (code == kOutOfMemory) return ResourceExhausted(text);
  if (!IsSticky(code)) return Internal(text);
  poison_->Take(Unavailable(text + "; this process cannot use the device any more: restart it")
                    .WithBlame(Blame::kHardware));
  return poison_->cause();
}

}  // namespace meshwright::device::cuda
