// Which histories a simulation runs: so many, or those of MESHWRIGHT_SEEDS=FIRST..LAST, which
// tools/simulate sets.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/scale.h"

namespace meshwright {

struct Seeds {
  uint64_t first = 1;
  uint64_t last = 0;
  uint64_t count() const { return last - first + 1; }
};

// `plain` of them, `sanitized` in a build that is slow.
inline Seeds SeedsOf(uint64_t plain, uint64_t sanitized) {
  Seeds seeds{1, kSanitizedBuild ? sanitized : plain};
  const char* text = std::getenv("MESHWRIGHT_SEEDS");
  if (text == nullptr) return seeds;
  unsigned long long first = 0;
  unsigned long long last = 0;
  if (std::sscanf(text, "%llu..%llu", &first, &last) == 2 && first <= last) {
    seeds = {first, last};
  }
  return seeds;
}

}  // namespace meshwright
