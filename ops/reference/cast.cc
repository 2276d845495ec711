// cast between all types.
#include <algorithm>

#include "ops/parallel.h"
#include "ops/reference/elements.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

constexpr int64_t kCastBlock = 512;

}  // namespace

KernelResult MakeCast(const KernelSpec& spec) {
  // A double holds no integers of 64 bits.
  if (spec.inputs[0].dtype == ir::DType::kI64 && spec.outputs[0].dtype == ir::DType::kI64) {
    return MakeReshape(spec);
  }
  return MakeFunctionKernel([](const RunContext& context, Inputs inputs,
                               Outputs outputs) -> Status {
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      double values[kCastBlock];
      for (int64_t at = begin; at < end; at += kCastBlock) {
        const int64_t count = std::min(kCastBlock, end - at);
        LoadBlock(inputs[0], at, count, values);
        StoreBlock(values, outputs[0], at, count);
      }
    });
    return {};
  });
}

}  // namespace meshwright::ops::reference
