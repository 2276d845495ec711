// Splitting a kernel's work over the device's thread team.
//
// Rule that keeps results independent of the number of threads: what is computed per index must not
// depend on how the indices are grouped. Reductions therefore work on blocks of a fixed size and
// combine their partial results in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernel.h"

namespace meshwright::ops {

inline constexpr int64_t kElementGrain = 16384;

// body(begin, end) over [0, count) in contiguous pieces that start at multiples of `grain`.
template <typename Body>
void ParallelRange(const RunContext& context, int64_t count, int64_t grain, const Body& body) {
  if (count <= 0) return;
  if (context.team == nullptr || count <= grain) {
    body(int64_t{0}, count);
    return;
  }
  const int64_t blocks = (count + grain - 1) / grain;
  context.team->ParallelFor(blocks, [&](int64_t begin, int64_t end, int) {
    if (begin < end) body(begin * grain, std::min(end * grain, count));
  });
}

// Rows per piece so that a piece has about kElementGrain elements.
inline int64_t RowGrain(int64_t row_elements) {
  return std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, row_elements));
}

// body(item) for every item, distributed over the team.
template <typename Body>
void ParallelItems(const RunContext& context, int64_t count, const Body& body) {
  ParallelRange(context, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) body(item);
  });
}

}  // namespace meshwright::ops
