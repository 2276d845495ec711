// Matrix products whose elements are alone: the bits of one depend on its row of a, its column of b
// and the instruction set, not on how many rows and columns are computed with it, nor on tiles.
//
// Idea: an element is one sum over k. Where a and b both lie along k it is a sum per lane, over
// every so many k, and then over lanes (the head of a model); in all other layouts k has
// kAloneSegments segments, each of them one chain of multiply-adds in its order, and an element is
// the sum of these in their order, whatever dim the vectors run along. Few rows stream through b,
// which is read once: threads take segments, so that each reads one run of bytes. For many, b is
// packed in panels that stay in the second cache. bf16 operands are widened as they are read; sums
// are of f32, and a bf16 result is rounded once.
//
// Why not oneDNN: it chooses its kernel, and with it the order of its sums, by the number of rows.
// Thread rule: pure functions, but for the thread's scratch.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
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
  int64_t sum_row = 0;  // of few rows: floats from one row of a segment's sums to the next
};

constexpr int64_t kAloneSegments = 4;
constexpr int64_t kFewRows = 8;

inline int64_t SegmentBegin(int64_t k, int64_t segment) { return k * segment / kAloneSegments; }

// Who computes the pieces of a product of few rows: run(count, piece) calls piece(0 .. count - 1),
// on as many threads as it likes.
struct AloneTeam {
  int64_t threads = 1;
  FunctionRef<void(int64_t count, FunctionRef<void(int64_t)> piece)> run;
};
AloneTeam NoTeam();

// c[m, n] = a[m, k] * b[k, n], plus c's old content when `accumulate`, which is for f32 only.
// REQUIRES: c has stride one in a dim that is longer than one, if it has any.
void VecAloneProduct(GemmSize size, AloneOperand a, AloneOperand b, AloneResult c, bool accumulate,
                     const AloneTeam& team = NoTeam());

}  // namespace meshwright::ops::cpu
