// The gradient of layer_norm and rms_norm, row by row, for kernels that do more with a row of dx
// while it is in the cache.
//
// dw and db are partial sums of fixed blocks of rows, added up in order. Thread rule: one Run at a
// time. Ownership: keeps the partial sums.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cpu {

class NormGrad {
 public:
  struct Operands {
    const float* x = nullptr;
    const float* w = nullptr;
    const float* mean = nullptr;  // null: rms_norm
    const float* rstd = nullptr;
    const float* dy = nullptr;
  };
  // In the order of the op: (x, w, [mean,] rstd, dy).
  static Operands OperandsOf(Inputs inputs, bool has_mean);

  // `block_rows`: 0: chosen by the number of rows.
  NormGrad(int64_t rows, int64_t width, bool has_mean, int64_t block_rows = 0);

  // place(row): where dx of the row goes; done(row, dx): it is there. Both on the thread that has
  // the row; a thread's rows of a block come in order.
  void Run(const RunContext& context, const Operands& operands,
           FunctionRef<float*(int64_t row)> place,
           FunctionRef<void(int64_t row, const float* dx)> done);
  // db null: not wanted.
  void AddUp(float* dw, float* db) const;

 private:
  void Combine(int64_t offset, float* out) const;

  int64_t rows_ = 0;
  int64_t width_ = 0;
  bool has_mean_ = false;
  int64_t block_ = 0;
  int64_t blocks_ = 0;
  std::vector<float> partial_;  // [blocks, 2, width]: dw, db
};

}  // namespace meshwright::ops::cpu
