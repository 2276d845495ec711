// A clock for tests of what decides by time.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace meshwright {

// Stands still until told to advance.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(int64_t now_ns = 0, int64_t unix_ms = 1'700'000'000'000)
      : now_ns_(now_ns), unix_offset_ns_(unix_ms * 1'000'000 - now_ns) {}

  int64_t NowNs() const override { return now_ns_.load(); }
  int64_t UnixMs() const override { return (now_ns_.load() + unix_offset_ns_) / 1'000'000; }

  void AdvanceNs(int64_t delta_ns) { now_ns_.fetch_add(delta_ns); }
  void AdvanceMs(int64_t delta_ms) { AdvanceNs(delta_ms * 1'000'000); }

 private:
  std::atomic<int64_t> now_ns_;
  const int64_t unix_offset_ns_;
};

}  // namespace meshwright
