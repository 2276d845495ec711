// Layers in contiguous, non-empty parts, so that the slowest part takes the least time.
//
// A bound of that time comes first, by bisection: parts that take as many layers as fit below it
// reach the end or do not. It leaves few ends of each part to the exact recurrence over (part,
// end), so n layers in k parts take O(k log n) for the bound and little more than O(n^2 / k) for
// the rest where layers are alike.
//
// Thread rule: pure functions.
#pragma once

#include <span>
#include <vector>

namespace meshwright::planner {

// Per layer its part. `sum_of_part`: per part the seconds of the first 0, 1, ... n layers where the
// part runs; parts may differ in speed. Ties give later parts fewer layers.
// REQUIRES: 1 <= parts <= n; sums do not fall.
std::vector<int> BalanceParts(std::span<const std::span<const double>> sum_of_part);

}  // namespace meshwright::planner
