// dropout and noise: functions of the step and of the place in the global tensor.
#include "base/philox.h"
#include "ops/dropout_mask.h"
#include "ops/global_runs.h"
#include "ops/parallel.h"
#include "ops/reference/elements.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
KernelResult MakeDropoutOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const DropoutMask mask(spec.attrs.Real("rate"), spec.attrs.Str("name"));
  return MakeFunctionKernel([runs = GlobalRuns(block), mask](const RunContext& context,
                                                             Inputs inputs,
                                                             Outputs outputs) -> Status {
    const T* x = inputs[0].as<T>();
    T* out = outputs[0].as<T>();
    for (int64_t r = 0; r < runs.runs(); ++r) {
      const uint64_t start = static_cast<uint64_t>(runs.At(r, context.microbatch).global_start);
      const int64_t first = r * runs.run_length();
      for (int64_t i = 0; i < runs.run_length(); ++i) {
        const double factor = mask.Factor(context, start + static_cast<uint64_t>(i));
        // Dropped is 0, even an infinity.
        out[first + i] = factor == 0 ? T{0} : x[first + i] * static_cast<T>(factor);
      }
    }
    return {};
  });
}

// Padding beyond the global edge is 0.
KernelResult MakeNumbers(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const uint64_t stream = StreamOf(spec.attrs.Str("name"));
  const bool normal = spec.attrs.Str("kind") == "normal";
  return MakeFunctionKernel([runs = GlobalRuns(block), stream, normal](
                                const RunContext& context, Inputs, Outputs outputs) -> Status {
    const auto step = static_cast<uint64_t>(context.step);
    const int64_t length = runs.run_length();
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const GlobalRuns::Run run = runs.At(i / length, context.microbatch);
        const auto index = static_cast<uint64_t>(run.global_start + i % length);
        double value = 0;
        if (i % length < run.valid) {
          value = normal ? PhiloxNormal(context.seed, stream, step, index)
                         : UniformFromBits(PhiloxBits(context.seed, stream, step, index));
        }
        StoreBlock(&value, outputs[0], i, 1);
      }
    });
    return {};
  });
}

}  // namespace

KernelResult MakeDropout(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [&](auto zero) { return MakeDropoutOf<decltype(zero)>(spec); });
}

KernelResult MakeNoise(const KernelSpec& spec) { return MakeNumbers(spec); }

}  // namespace meshwright::ops::reference
