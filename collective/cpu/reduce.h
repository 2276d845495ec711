// Element-wise combination of equally long pieces, in the order in which they are added.
//
// The accumulator holds f32 for f32, bf16 and f16 (one rounding at the end), else the dtype itself.
// The result is a function of the pieces and their order only: chunking and transport do not change
// a bit of it. NaN is contagious in every reduction. -inf is the zero of kLogSumExp.
//
// Thread rule: kernels are pure; an Accumulator belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "collective/communicator.h"

namespace meshwright::collective {

struct ReduceKernel {
  void (*load)(void* accumulator, const void* piece, int64_t count) = nullptr;
  void (*add)(void* accumulator, const void* piece, int64_t count) = nullptr;
  void (*store)(void* output, const void* accumulator, int64_t count) = nullptr;
};

// Errors: kInvalidArgument for a pair that has no meaning here (bool, or kLogSumExp of integers).
Result<ReduceKernel> FindReduceKernel(ir::DType dtype, Reduction reduction);

// Scratch for one chunk.
class Accumulator {
 public:
  // max_piece_bytes: of the widest piece in its own dtype.
  explicit Accumulator(int64_t max_piece_bytes);
  void Add(const ReduceKernel& kernel, const void* piece, int64_t count, bool first) {
    (first ? kernel.load : kernel.add)(memory_.get(), piece, count);
  }
  void Store(const ReduceKernel& kernel, void* output, int64_t count) const {
    kernel.store(output, memory_.get(), count);
  }

 private:
  std::unique_ptr<double[]> memory_;
};

}  // namespace meshwright::collective
