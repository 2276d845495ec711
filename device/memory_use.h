// MemoryUse: bytes by what they are for. MemoryLedger: what one device has handed out, against its
// limit.
//
// Thread rule: MemoryUse is a plain value; MemoryLedger is thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "base/mutex.h"
#include "base/result.h"
#include "ir/program.h"

namespace meshwright::device {

inline constexpr int kMemoryKindCount = static_cast<int>(ir::MemoryKind::kOther) + 1;

class MemoryUse {
 public:
  MemoryUse() = default;
  MemoryUse(ir::MemoryKind kind, int64_t bytes) { (*this)[kind] = bytes; }

  int64_t& operator[](ir::MemoryKind kind) { return bytes_[static_cast<size_t>(kind)]; }
  int64_t operator[](ir::MemoryKind kind) const { return bytes_[static_cast<size_t>(kind)]; }
  int64_t total() const;
  MemoryUse& operator+=(const MemoryUse& other);
  MemoryUse& operator-=(const MemoryUse& other);
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;

 private:
  std::array<int64_t, kMemoryKindCount> bytes_{};
};

class MemoryLedger {
 public:
  // limit_bytes 0: no limit of its own.
  explicit MemoryLedger(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Errors: kResourceExhausted with the bytes asked for, in use (by kind) and allowed; nothing is
  // charged then.
  Status Charge(const MemoryUse& use);
  void Release(const MemoryUse& use);
  MemoryUse use() const;

 private:
  const int64_t limit_bytes_;
  mutable Mutex mutex_;
  MemoryUse use_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::device
