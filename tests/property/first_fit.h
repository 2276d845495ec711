// First fit by decreasing size as it is defined, for what places lifetimes faster.
#pragma once

#include <vector>

#include "ir/lifetime.h"

namespace meshwright::ir::testing {

// Large ones first, each at the lowest offset where nothing that lives with it is in the way.
// O(n^2 log n).
Placement FirstFit(const std::vector<Lifetime>& lives);

}  // namespace meshwright::ir::testing
