// Sums of few outer products: c[m, n] = sum over k of a[k, m] * b[k, n], as gradients of weights
// are where a run of tokens is short.
//
// Idea: such a product reads little and writes much, and a general one, made for long sums, spends
// a third of its time on getting there. Here both operands are packed once, so that a block of c
// stays in registers over the whole sum, and rows of c are written whole, one after the other.
// Sums run in the order of k. Compiled for several instruction sets; thread rule: pure functions.
#pragma once

#include <cstdint>

#include "ops/cpu/gemm.h"

namespace meshwright::ops::cpu {

// The longest sum; packed operands of longer ones leave the second-level cache.
inline constexpr int64_t kLongestOuterSum = 128;

// c[m, n] = a^T b, plus c's old content when `accumulate`; size.k is the length of the sums.
// REQUIRES: a [k, m], b [k, n] and c have stride one along columns; 0 < k <= kLongestOuterSum.
void VecOuterProduct(const GemmSize& size, const ConstMatrix& a, const ConstMatrix& b,
                     const Matrix& c, bool accumulate);

}  // namespace meshwright::ops::cpu
