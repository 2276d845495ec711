// Combiner: the reduction that NCCL does not have, as a kernel of ours.
//
// log-sum-exp of blocks that were gathered before, in list order: NCCL moves, this combines.
//
// Thread rule: thread-safe. Ownership: outlives the fabric.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/queue.h"
#include "ir/dtype.h"

namespace meshwright::collective::nccl {

// output[i] = log(sum over p of exp(pieces[p * count + i])), i < count. bf16 and f16 are combined
// in f32 and rounded once. -inf is the zero; NaN is contagious.
struct CombineArgs {
  void* output = nullptr;
  const void* pieces = nullptr;  // `parts` blocks, one after the other; output is not among them
  int64_t count = 0;
  int32_t parts = 0;
  ir::DType dtype = ir::DType::kF32;  // f32, f64, bf16, f16
};

class Combiner {
 public:
  virtual ~Combiner() = default;
  // Puts it into the queue.
  virtual Status LogSumExp(const CombineArgs& args, device::Queue& queue) = 0;
};

// What the plugin exports, extern "C": Combiner*(), one for the process (combine.cu).
inline constexpr char kCombinerSymbol[] = "meshwright_cuda_combiner";

}  // namespace meshwright::collective::nccl
