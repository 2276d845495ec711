// What an einsum of two operands computes, as loops with strides.
//
// Every label belongs to one of four groups by where it occurs: batch (a, b and c), m (a and c), n
// (b and c), k (a and b).
//   c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n], in whatever order the labels
//   are stored.
// MergeLoops and ChooseGemm turn that into matrix products: labels that are contiguous in all their
// tensors become one loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/kernel.h"

namespace meshwright::ops {

// One label: its size and its strides in elements (0 where the tensor does not have it).
struct EinsumLoop {
  char label = 0;
  int64_t size = 1;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

struct EinsumLoops {
  std::vector<EinsumLoop> batch;
  std::vector<EinsumLoop> m;
  std::vector<EinsumLoop> n;
  std::vector<EinsumLoop> k;
};

// Errors: kInvalidArgument naming equation and shapes: not "xx,yy->zz", ranks or sizes differ, a
// label occurs once, or twice in one tensor.
Result<EinsumLoops> ClassifyEinsum(std::string_view equation, const ir::Dims& a, const ir::Dims& b,
                                   const ir::Dims& c);

// Drops loops of size one and merges neighbours that are contiguous in every tensor.
EinsumLoops MergeLoops(EinsumLoops loops);

// One matrix product per combination of the outer loops, summed over the combinations of `depth`.
struct GemmLoops {
  EinsumLoop m;
  EinsumLoop n;
  EinsumLoop k;
  std::vector<EinsumLoop> outer;  // batch and what is left of m and n
  std::vector<EinsumLoop> depth;  // what is left of k
};

// The largest matrix product in which each of a, b and c has unit stride along one of its two
// loops, so that a BLAS can run it; nothing when no such choice exists.
std::optional<GemmLoops> ChooseGemm(const EinsumLoops& merged);

}  // namespace meshwright::ops
