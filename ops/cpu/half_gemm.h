// Single-threaded bf16 matrix product with f32 accumulation on oneDNN's matmul primitive, made once
// per shape. Needs AVX-512; other processors widen and use Gemm (ops/widen.h).
//
// Thread rule: Run() from any threads at once. Ownership: copies share the primitive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ir/dtype.h"
#include "ops/cpu/gemm.h"

namespace meshwright::ops::cpu {

// Strides of a matrix: element (i, j) is at i * row + j * column.
struct Strides {
  int64_t row = 0;
  int64_t column = 1;
};

struct HalfGemmShape {
  GemmSize size;
  Strides a;
  Strides b;
  Strides c;
  ir::DType c_dtype = ir::DType::kF32;  // kF32 or kBF16
  bool accumulate = false;              // adds to c's old content
};

class HalfGemm {
 public:
  // Nothing when this processor has no such product, or a stride fits no matrix.
  static std::optional<HalfGemm> Make(HalfGemmShape shape);

  void Run(const uint16_t* a, const uint16_t* b, void* c) const;

 private:
  struct Primitive;
  std::shared_ptr<const Primitive> primitive_;
  bool swapped_ = false;  // computes c^T = b^T a^T
};

}  // namespace meshwright::ops::cpu
