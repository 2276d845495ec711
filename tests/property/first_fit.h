// First fit as it is defined, for what places lifetimes faster.
#pragma once

#include <vector>

#include "ir/lifetime.h"

namespace meshwright::ir::testing {

// Each at the lowest offset where nothing that lives with it is in the way: by beginning, and where
// that leaves gaps the lowest of that, by size and by area.
// O(n^2 log n).
Placement FirstFit(const std::vector<Lifetime>& lives);

}  // namespace meshwright::ir::testing
