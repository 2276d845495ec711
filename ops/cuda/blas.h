// Blas: matrix products with what may follow them in the same kernel.
//
//   c[i] = finish(a[i] b[i] + (accumulate ? c[i] : 0)), i < batch; all matrices row-major:
//   a is [m, k], or [k, m] when transposed; b is [k, n] or [n, k]; c is [m, n].
//
// Products of 16-bit operands add in f32. The plugin implements it with cuBLASLt (blas.cu), which
// is asked once for each product what its fastest kernel is; tests with plain loops.
//
// Thread rule: thread-safe; Plan() and Run() are on the device that the calling thread uses, and a
// plan is for that device. Ownership: plans live as long as the Blas.
// Source: cuBLAS library documentation, "cuBLASLt", cublasLtEpilogue_t.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "device/cuda/driver.h"
#include "ir/dtype.h"

namespace meshwright::ops::cuda {

// What happens to the f32 sums before they are rounded to c's type. gelu is the tanh form, as ours.
// The aux is [m, n] in c's type; bias and bias gradient are [n] in c's type.
enum class BlasEpilogue : uint8_t {
  kNone,
  kBias,         // x + bias
  kGelu,         // gelu(x)
  kGeluAux,      // gelu(x), x into aux
  kBiasGelu,     // gelu(x + bias)
  kBiasGeluAux,  // gelu(x + bias), x + bias into aux
  kGeluGrad,     // x * gelu'(aux)
  kGeluGradSum,  // the same, and the sums of its columns into the bias gradient
};

struct BlasProduct {
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  int64_t batch = 1;
  ir::DType operands = ir::DType::kF32;  // of a and b: f32, bf16 or f16
  ir::DType result = ir::DType::kF32;    // of c: f32 or that of the operands
  bool tf32 = false;                     // f32 operands are rounded to 19 bits
  bool transpose_a = false;
  bool transpose_b = false;
  // Elements from row to row as stored, and from matrix to matrix.
  int64_t a_row = 1;
  int64_t b_row = 1;
  int64_t c_row = 1;
  int64_t a_batch = 0;
  int64_t b_batch = 0;
  int64_t c_batch = 0;
  bool accumulate = false;
  BlasEpilogue epilogue = BlasEpilogue::kNone;
  int64_t aux_row = 0;
  int64_t alignment_bytes = 16;  // of all addresses, a power of two

  friend auto operator<=>(const BlasProduct&, const BlasProduct&) = default;
};

// A product on one device with the kernel that was chosen for it.
class BlasPlan {
 public:
  virtual ~BlasPlan() = default;
  // Of scratch, wherever that starts (ops/cuda/workspace.h).
  virtual int64_t workspace_bytes() const = 0;
};

struct BlasMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  void* bias = nullptr;  // read, or the bias gradient
  void* aux = nullptr;   // written, or read by gradients
  void* workspace = nullptr;
};

class Blas {
 public:
  virtual ~Blas() = default;

  // Equal products share a plan. Errors: kUnimplemented: the library has no kernel for it;
  // kInternal with the name of the library's error.
  virtual Result<const BlasPlan*> Plan(const BlasProduct& product) = 0;
  // Errors: kInternal with the name of the library's error.
  virtual Status Run(const BlasPlan& plan, const BlasMemory& memory,
                     device::cuda::StreamHandle stream) = 0;
};

}  // namespace meshwright::ops::cuda
