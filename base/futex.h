// Futex: sleep until a 32-bit word changes, wake those who sleep on it. The slow path of primitives
// that spin first (ThreadTeam); everything above this folder waits on Executors and Deadlines.
//
// Thread rule: thread-safe. Works within one process (private futex).
#pragma once

#include <atomic>
#include <cstdint>

namespace meshwright {

// Sleeps while `word` still equals `expected`. May return early: callers re-check in a loop.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected);

// Wakes every thread that sleeps on `word`.
void FutexWakeAll(const std::atomic<uint32_t>& word);

// One iteration of a spin loop: tells the core that this is one.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace meshwright
