// dropout: chunks of runs that are contiguous in the global tensor.
#include <algorithm>

#include "ops/cpu/cpu.h"
#include "ops/cpu/mask_row.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/global_runs.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kChunk = 1024;

}  // namespace

void MaskRow(const DropoutMask& mask, const RunContext& context, uint64_t start, const float* x,
             float* out, int64_t count) {
  const float scale = static_cast<float>(mask.keep_scale());
  uint32_t bits[kChunk];
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t length = std::min(kChunk, count - first);
    VecPhilox(mask.Key(context.seed), static_cast<uint64_t>(context.step),
              start + static_cast<uint64_t>(first), bits, length);
    VecMask(x + first, bits, mask.threshold(), scale, out + first, length);
  }
}

KernelResult MakeDropout(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const DropoutMask mask(spec.attrs.Real("rate"), spec.attrs.Str("name"));
  return MakeFunctionKernel([runs = GlobalRuns(block), mask](const RunContext& context,
                                                             Inputs inputs,
                                                             Outputs outputs) -> Status {
    const int64_t length = runs.run_length();
    const int64_t chunks = (length + kChunk - 1) / kChunk;
    const auto run_chunk = [&](int64_t item) {
      const int64_t run = item / chunks;
      const int64_t first = item % chunks * kChunk;
      const int64_t at = run * length + first;
      const int64_t start = runs.At(run, context.microbatch).global_start + first;
      MaskRow(mask, context, static_cast<uint64_t>(start), inputs[0].as<float>() + at,
              outputs[0].as<float>() + at, std::min(kChunk, length - first));
    };
    ParallelRange(context, runs.runs() * chunks, RowGrain(std::min(length, kChunk)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t item = begin; item < end; ++item) run_chunk(item);
                  });
    return {};
  });
}

}  // namespace meshwright::ops::cpu
