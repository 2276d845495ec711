// Products of few rows with a large matrix: c[m, n] = a[m, k] * b[k, n], as products of experts
// are where a run of tokens is short.
//
// Idea: a general product copies b into blocks first, which pays where many rows use the copy. For
// few rows it takes a third of the time. Here b is read once, where it lies: its numbers are
// factors of vectors of a where a row of it lies along k, and otherwise the first rows of c copy
// the columns they read for the rows behind them, while those fetch the next columns. Sums run in
// the order of k. Compiled for several instruction sets; thread rule: pure functions.
#pragma once

#include <cstdint>

#include "ops/cpu/gemm.h"

namespace meshwright::ops::cpu {

// The most rows; with more of them a copy of b pays.
inline constexpr int64_t kMostFewRows = 128;

// REQUIRES: a and c have stride one along columns, b along rows or along columns; m <=
// kMostFewRows.
void VecFewRows(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b, const Matrix& c);

}  // namespace meshwright::ops::cpu
