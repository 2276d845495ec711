// Copies a tensor over the team: where an accumulator is not already in its result's place.
//
// Thread rule: as Kernel::Run.
#pragma once

#include <cstddef>
#include <cstring>

#include "ops/parallel.h"

namespace meshwright::ops::cpu {

inline void CopyTensor(const RunContext& context, const Tensor& from, const Tensor& to) {
  if (from.data == to.data) return;
  const int64_t grain = kElementGrain * static_cast<int64_t>(sizeof(float));
  ParallelRange(context, from.type->bytes(), grain, [&](int64_t begin, int64_t end) {
    std::memcpy(to.as<std::byte>() + begin, from.as<std::byte>() + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace meshwright::ops::cpu
