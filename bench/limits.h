// What the machine can do: the rates that a step is held against.
//
// Thread rule: any; each call uses the threads that it is given.
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace meshwright::bench {

// c[m, n] = a[m, k] * b[k, n], the operands stored as said: what one training step asks for.
struct MatmulShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

// Whether oneDNN has them for this processor; those of bf16 take AVX-512.
bool HasProductsOf(ir::DType dtype);

// Seconds of one product by oneDNN on `threads` threads, each with its part of the rows: the best
// of its sgemm and its matmul primitive with weights in its own layout, the median of several.
// REQUIRES: HasProductsOf(dtype).
double MatmulSeconds(const MatmulShape& shape, ir::DType dtype, int threads);

// Bytes per second of a copy between buffers far larger than the caches, read and write counted.
double CopyBandwidth(int threads);

// Bytes per second of reading a buffer far larger than the caches, from begin to end.
double ReadBandwidth(int threads);

}  // namespace meshwright::bench
