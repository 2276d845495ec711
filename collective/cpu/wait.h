// Waiting for a 32-bit word that another thread, or another process of the host, changes.
//
// A bounded spin (a wake-up costs 20-45 us here, a spin hit 0.3 us), then futex waits in slices of
// kWaitSliceMs; every slice looks at the abort latch, the departure of the peer and the deadline,
// so a peer that died between its last store and its wake call, or without either, cannot strand a
// waiter.
//
// Thread rule: any thread. The word may lie in memory shared between processes (futexes are not
// private).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/futex.h"
#include "collective/cpu/abort_latch.h"

namespace meshwright::collective {

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr int64_t kWaitSliceMs = 20;
inline constexpr int kLongSpin = 2000;  // 10-30 us; for at most one rank per core
inline constexpr int kShortSpin = 64;   // when the peer may need this core to make progress

// Zeroed memory is a valid initial state; it lives at the start of shared rings.
struct WaitWord {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> waiters{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(WaitWord) == 8);

enum class WaitResult : uint8_t { kReady, kStopped, kDeparted, kTimedOut };

struct WaitScope {
  const AbortLatch* latch = nullptr;
  const std::atomic<bool>* departed = nullptr;  // the peer said goodbye; may be null
  Deadline deadline;
  int spin = kShortSpin;
};

// Sleeps while word == expected, at most until the slice or `deadline` ends. May return early.
void SharedFutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Deadline deadline);
void SharedFutexWake(const std::atomic<uint32_t>& word);

// Stores `value` and wakes the waiters, if any.
inline void StoreAndWake(WaitWord& word, uint32_t value) {
  word.value.store(value);
  if (word.waiters.load() != 0) {
    SharedFutexWake(word.value);
  }
}

// Returns when ready() holds, else with the reason why not. ready() depends on word.value.
template <typename Ready>
WaitResult WaitOn(WaitWord& word, const Ready& ready, const WaitScope& scope) {
  for (int i = 0; i < scope.spin; ++i) {
    if (ready()) {
      return WaitResult::kReady;
    }
    SpinPause();
  }
  for (;;) {
    const uint32_t seen = word.value.load();
    if (ready()) {
      return WaitResult::kReady;
    }
    if (scope.latch->stopped()) {
      return WaitResult::kStopped;
    }
    if (scope.departed != nullptr && scope.departed->load()) {
      return ready() ? WaitResult::kReady : WaitResult::kDeparted;
    }
    if (std::chrono::steady_clock::now() >= scope.deadline) {
      return WaitResult::kTimedOut;
    }
    word.waiters.fetch_add(1);
    SharedFutexWait(word.value, seen, scope.deadline);
    word.waiters.fetch_sub(1);
  }
}

}  // namespace meshwright::collective
