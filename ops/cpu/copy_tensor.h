// Copies a tensor over the team: where an accumulator is not already in its result's place.
//
// Thread rule: as Kernel::Run.
#pragma once

#include <cstring>

#include "ops/parallel.h"

namespace meshwright::ops::cpu {

inline void CopyTensor(const RunContext& context, const Tensor& from, const Tensor& to) {
  if (from.data == to.data) return;
  ParallelRange(context, from.elements(), kElementGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to.as<float>() + begin, from.as<float>() + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
  });
}

}  // namespace meshwright::ops::cpu
