#include "device/memory_use.h"

#include <fmt/format.h>

#include <numeric>
#include <string>

namespace meshwright::device {
namespace {

std::string Breakdown(const MemoryUse& use) {
  std::string text;
  for (int i = 0; i < kMemoryKindCount; ++i) {
    const auto kind = static_cast<ir::MemoryKind>(i);
    if (use[kind] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", ir::MemoryKindName(kind), use[kind]);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

int64_t MemoryUse::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
}

MemoryUse& MemoryUse::operator+=(const MemoryUse& other) {
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] += other.bytes_[i];
  return *this;
}

MemoryUse& MemoryUse::operator-=(const MemoryUse& other) {
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] -= other.bytes_[i];
  return *this;
}

Status MemoryLedger::Charge(const MemoryUse& use) {
  const MutexLock lock(mutex_);
  const int64_t in_use = use_.total();
  if (limit_bytes_ > 0 && use.total() > limit_bytes_ - in_use) {
    return ResourceExhausted(fmt::format(
        "device memory: {} bytes asked for ({}), {} in use ({}), limit {}; split the model over "
        "more devices or raise the limit",
        use.total(), Breakdown(use), in_use, Breakdown(use_), limit_bytes_));
  }
  use_ += use;
  return OkStatus();
}

void MemoryLedger::Release(const MemoryUse& use) {
  const MutexLock lock(mutex_);
  use_ -= use;
}

MemoryUse MemoryLedger::use() const {
  const MutexLock lock(mutex_);
  return use_;
}

}  // namespace meshwright::device
