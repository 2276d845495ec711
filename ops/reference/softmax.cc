// softmax and log_softmax: rows of the last dim, sums in double.
#include <algorithm>
#include <cmath>

#include "ops/parallel.h"
#include "ops/reference/larger.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
void SoftmaxOfRow(const T* x, T* out, int64_t width, bool log) {
  double largest = static_cast<double>(x[0]);
  for (int64_t i = 1; i < width; ++i) largest = Larger(largest, static_cast<double>(x[i]));
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += std::exp(static_cast<double>(x[i]) - largest);
  const double shift = largest + std::log(sum);
  for (int64_t i = 0; i < width; ++i) {
    const double y = static_cast<double>(x[i]) - shift;
    out[i] = static_cast<T>(log ? y : std::exp(y));
  }
}

template <typename T>
KernelResult MakeSoftmaxOf(const KernelSpec& spec) {
  const int64_t width = spec.inputs[0].dims.back();
  const bool log = spec.op == ir::Op::kLogSoftmax;
  return MakeFunctionKernel(
      [width, log](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        ParallelRange(context, inputs[0].elements() / width, RowGrain(4 * width),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r) {
                          SoftmaxOfRow(inputs[0].as<T>() + r * width,
                                       outputs[0].as<T>() + r * width, width, log);
                        }
                      });
        return {};
      });
}

}  // namespace

KernelResult MakeSoftmax(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [&](auto zero) { return MakeSoftmaxOf<decltype(zero)>(spec); });
}

}  // namespace meshwright::ops::reference
