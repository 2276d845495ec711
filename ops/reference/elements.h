// Elements of tensors of any type as numbers in double, a block at a time.
//
// Integers of 64 bits above 2^53 are rounded. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "ops/kernel.h"

namespace meshwright::ops::reference {

// to[i] = element first + i; behind the last element the tensor begins again.
void LoadBlock(const Tensor& x, int64_t first, int64_t count, double* to);
// Rounds to nearest even; integers towards zero, to their nearest number where they cannot hold it,
// NaN to 0. A bool is whether it is not 0.
void StoreBlock(const double* from, const Tensor& out, int64_t first, int64_t count);

}  // namespace meshwright::ops::reference
