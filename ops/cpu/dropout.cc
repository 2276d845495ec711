// dropout: masks from vectorised Philox, 1024 elements at a time.
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/global_runs.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kChunk = 1024;

// u = bits >> 8 is kept when u * 2^-24 >= rate, that is when u >= ceil(rate * 2^24), exactly.
uint32_t ThresholdOf(double rate) {
  return static_cast<uint32_t>(std::ceil(std::clamp(rate, 0.0, 1.0) * 0x1.0p24));
}

}  // namespace

KernelResult MakeDropout(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const double rate = spec.attrs.Real("rate");
  const uint32_t threshold = ThresholdOf(rate);
  const float scale = static_cast<float>(rate < 1 ? 1.0 / (1.0 - rate) : 0.0);
  const uint64_t stream = StreamOf(spec.attrs.Str("name")) * 0x9E3779B97F4A7C15ull;
  return MakeFunctionKernel(
      [runs = GlobalRuns(block), threshold, scale, stream](const RunContext& context, Inputs inputs,
                                                           Outputs outputs) -> Status {
        const int64_t length = runs.run_length();
        const int64_t chunks = (length + kChunk - 1) / kChunk;
        const auto run_chunk = [&](int64_t item) {
          const int64_t run = item / chunks;
          const int64_t first = item % chunks * kChunk;
          const int64_t count = std::min(kChunk, length - first);
          uint32_t bits[kChunk];
          const uint64_t start =
              static_cast<uint64_t>(runs.At(run, context.microbatch).global_start + first);
          VecPhilox(context.seed ^ stream, static_cast<uint64_t>(context.step), start, bits, count);
          const int64_t at = run * length + first;
          VecMask(inputs[0].as<float>() + at, bits, threshold, scale, outputs[0].as<float>() + at,
                  count);
        };
        ParallelRange(context, runs.runs() * chunks, RowGrain(std::min(length, kChunk)),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t item = begin; item < end; ++item) run_chunk(item);
                      });
        return {};
      });
}

}  // namespace meshwright::ops::cpu
