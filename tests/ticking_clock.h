// A clock for tests of what ends by time, which passes only when somebody asks for it: how much is
// done in a time is then the same on every machine.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace meshwright {

// Every look at it takes a millisecond.
class TickingClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.fetch_add(1'000'000); }
  int64_t UnixMs() const override { return NowMs(); }

 private:
  mutable std::atomic<int64_t> now_ns_ = 0;
};

}  // namespace meshwright
