// EinsumRunner: an einsum as matrix products of a Blas, and what puts them into a queue.
//
// Labels are grouped into one product per combination of the loops that are left
// (ops/einsum_plan.h); the largest of these loops is the batch of a call. Layouts that no product
// can read, or that need too many calls, are first packed to [batch, m, k] and [batch, k, n].
//
// Thread rule: one Run() at a time. Ownership: device and toolkit outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda/device.h"
#include "ops/cuda/toolkit.h"
#include "ops/einsum_plan.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cuda {

class EinsumRunner {
 public:
  struct Form {
    std::string equation;
    ir::TensorType a;
    ir::TensorType b;
    ir::TensorType c;
    bool accumulate = false;
  };
  // Nothing for types that no product takes: a and b are both f32, bf16 or f16, and c is that or
  // f32. Errors: kInvalidArgument: the equation does not fit; the Blas's.
  static Result<std::optional<EinsumRunner>> Make(const Form& form,
                                                  device::cuda::CudaDevice& device,
                                                  Toolkit& toolkit);

  int64_t scratch_bytes() const;
  // c = the einsum, plus its old content when the form accumulates. `scratch` of scratch_bytes().
  Status Run(const RunContext& context, const void* a, const void* b, void* c,
             std::byte* scratch) const;

  // The product when it is all there is and c is one dense row-major matrix.
  std::optional<BlasProduct> OnlyProduct() const;
  // Whether that product's a is the einsum's b.
  bool swapped() const { return swapped_; }

 private:
  // Elements from the start of each tensor to that of one product's matrices.
  struct Call {
    int64_t a = 0;
    int64_t b = 0;
    int64_t c = 0;
    bool accumulate = false;
  };
  // A tensor copied to or from the order of labels that a product can read.
  struct Packing {
    int64_t bytes = 0;
    int64_t run_bytes = 0;
    std::vector<device::StridedRuns::Loop> loops;

    device::StridedRuns runs() const { return {run_bytes, loops}; }
  };

  EinsumRunner(device::cuda::CudaDevice& device, Blas& blas) : device_(&device), blas_(&blas) {}

  // False when there would be too many calls, or sums of rounded values.
  bool Arrange(const GemmLoops& gemm);
  void Pack(const EinsumLoops& loops, const Form& form);
  Status Choose();

  device::cuda::CudaDevice* device_;
  Blas* blas_;
  BlasProduct product_;
  bool swapped_ = false;  // c is stored by columns: the product is that of b^T and a^T
  std::vector<Call> calls_;
  const BlasPlan* plan_ = nullptr;
  const BlasPlan* adding_plan_ = nullptr;  // of calls that accumulate
  std::vector<Packing> packing_;           // empty, or of a, b and c
};

}  // namespace meshwright::ops::cuda
