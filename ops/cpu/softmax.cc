// softmax and log_softmax of f32 rows.
#include <cmath>

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_math.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

// `x` may be `out`: it is read before the last write.
void SoftmaxOfRow(const float* x, float* out, int64_t width, bool log) {
  const float largest = VecMax(x, width);
  if (log) {
    const float shift = largest + std::log(VecExpSum(x, largest, nullptr, width));
    VecNative(ir::Op::kShift, x, nullptr, -shift, out, width);
    return;
  }
  const float sum = VecExpSum(x, largest, out, width);
  VecNative(ir::Op::kScale, out, nullptr, 1.0f / sum, out, width);
}

}  // namespace

KernelResult MakeSoftmax(const KernelSpec& spec) {
  const int64_t width = spec.inputs[0].dims.back();
  const bool log = spec.op == ir::Op::kLogSoftmax;
  return MakeFunctionKernel(
      [width, log](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        ParallelRange(context, inputs[0].elements() / width, RowGrain(width),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r) {
                          SoftmaxOfRow(inputs[0].as<float>() + r * width,
                                       outputs[0].as<float>() + r * width, width, log);
                        }
                      });
        return {};
      });
}

}  // namespace meshwright::ops::cpu
