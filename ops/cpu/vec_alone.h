// Matrix products whose elements are alone: the bits of one depend on its row of a, its column of b
// and the instruction set, not on how many rows and columns are computed with it, nor on tiles.
//
// Idea: an element is one sum over k. Where a and b both lie along k it is a sum per lane, over
// every so many k, and then over lanes (the head of a model); in all other layouts it is one chain
// of multiply-adds in the order of k, whatever dim the vectors run along. Few rows stream through
// b, which is read once; for many, b is packed in panels that stay in the second cache. bf16
// operands are widened as they are read; sums are of f32, and a bf16 result is rounded once.
//
// Why not oneDNN: it chooses its kernel, and with it the order of its sums, by the number of rows.
// Thread rule: pure functions, but for the thread's scratch.
#pragma once

#include <cstdint>

#include "ops/cpu/gemm.h"

namespace meshwright::ops::cpu {

// f32, or bf16 as uint16_t; element (i, j) is at i * row_stride + j * column_stride.
struct AloneOperand {
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
  bool half = false;
};

struct AloneResult {
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
  bool half = false;
};

// What the code of one instruction set works on: a in f32 with k contiguous, columns of c too.
struct AloneWork {
  GemmSize size;
  const float* a = nullptr;
  int64_t a_row = 0;
  AloneOperand b;
  AloneResult c;
  bool accumulate = false;
  float* scratch = nullptr;
};

// c[m, n] = a[m, k] * b[k, n], plus c's old content when `accumulate`, which is for f32 only.
// REQUIRES: c has stride one in a dim that is longer than one, if it has any.
void VecAloneProduct(GemmSize size, AloneOperand a, AloneOperand b, AloneResult c, bool accumulate);

}  // namespace meshwright::ops::cpu
