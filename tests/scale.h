// How much of a sweep a build runs. Sanitizers make code 5 to 50 times slower and find in a part
// what they would find in the whole; numbers are judged by the plain build, which runs everything.
#pragma once

namespace meshwright {

#if defined(MW_THREAD_SANITIZER) || defined(MW_ADDRESS_SANITIZER)
inline constexpr bool kSanitizedBuild = true;
#else
inline constexpr bool kSanitizedBuild = false;
#endif

// Emulated GPUs are polled from many threads, and take a hundred times as long there.
#if defined(MW_THREAD_SANITIZER)
inline constexpr bool kThreadSanitizedBuild = true;
#else
inline constexpr bool kThreadSanitizedBuild = false;
#endif

// For the cases of a property: true for all but every n-th call in a sanitized build.
inline bool LeavesOut(int n) {
  static int calls = 0;
  return kSanitizedBuild && calls++ % n != 0;
}

}  // namespace meshwright
