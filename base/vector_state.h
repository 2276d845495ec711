// The state of vector registers. Where upper halves of AVX registers are in use, some processors
// merge them at each SSE instruction: std::tanh takes 380 ns rather than 17 on an Intel Xeon
// (family 6, model 207), and a step in float64 four times as long. What our compiler makes clears
// them at its end; not all libraries do, and a new thread begins with its creator's. So whoever
// begins much work in plain C++ clears them first.
#pragma once

namespace meshwright {

// Says that no upper half is needed. Any thread; a few cycles.
inline void ClearUpperHalves() {
#if defined(__x86_64__)
  static const bool has_them = __builtin_cpu_supports("avx");
  if (has_them) asm volatile("vzeroupper");
#endif
}

}  // namespace meshwright
