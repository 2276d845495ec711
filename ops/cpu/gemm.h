// Single-threaded f32 matrix product on oneDNN's sgemm. Splitting over threads is the caller's
// business: oneDNN is never allowed to start threads of its own.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>

namespace meshwright::ops::cpu {

// A matrix in memory: element (i, j) is data[i * row_stride + j * column_stride].
struct ConstMatrix {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};

struct Matrix {
  float* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};

struct GemmSize {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

inline ConstMatrix Transposed(ConstMatrix x) { return {x.data, x.column_stride, x.row_stride}; }

// oneDNN's OpenMP runs on the calling thread alone from now on; cheap after the first call.
void ForceOneOpenMpThread();

// c[m, n] = a[m, k] * b[k, n], plus c's old content when `accumulate`.
// REQUIRES: each matrix has stride one in one of its dims that are longer than one, if it has any.
void Gemm(GemmSize size, ConstMatrix a, ConstMatrix b, Matrix c, bool accumulate);

}  // namespace meshwright::ops::cpu
