// Waiting for a 32-bit word that another thread, or another process of the host, changes.
//
// A bounded spin (a wake-up of an idle core costs 20-45 us, a spin hit 0.3 us), a bounded time of
// giving the core away, then futex waits in slices of kWaitSliceMs; every slice looks at the abort
// latch, the departure of the peer and the deadline, so a peer that died between its last store and
// its wake call, or without either, cannot strand a waiter.
//
// Thread rule: any thread. The word may lie in memory shared between processes (futexes are not
// private).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/futex.h"
#include "collective/cpu/abort_latch.h"

namespace meshwright::collective {

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr int64_t kWaitSliceMs = 20;

// How a wait passes its time before it sleeps: it looks again and again, then gives the core away
// between looks, which costs 0.3 us when nobody wants it and lets a peer on the same core go on
// when one does. So a core never idles between ranks that wait for each other.
struct Patience {
  int spins = 64;
  int64_t yield_us = 0;
};
inline constexpr Patience kOwnCore{.spins = 100, .yield_us = 50};  // at most one rank per core
inline constexpr Patience kSharedCore{.spins = 16, .yield_us = 100};

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
  Patience patience = {};
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

// Gives the core away until ready() or the time is over.
template <typename Ready>
bool YieldUntil(const Ready& ready, int64_t yield_us) {
  const Deadline end = std::chrono::steady_clock::now() + std::chrono::microseconds(yield_us);
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    if (ready()) {
      return true;
    }
  }
  return false;
}

// Returns when ready() holds, else with the reason why not. Whoever makes it true changes
// word.value afterwards, or does so when it then sees word.waiters.
template <typename Ready>
WaitResult WaitOn(WaitWord& word, const Ready& ready, const WaitScope& scope) {
  for (int i = 0; i < scope.patience.spins; ++i) {
    if (ready()) {
      return WaitResult::kReady;
    }
    SpinPause();
  }
  if (scope.patience.yield_us > 0 && YieldUntil(ready, scope.patience.yield_us)) {
    return WaitResult::kReady;
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
    if (!ready()) {
      SharedFutexWait(word.value, seen, scope.deadline);
    }
    word.waiters.fetch_sub(1);
  }
}

}  // namespace meshwright::collective
