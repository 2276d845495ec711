// noise: runs that are contiguous in the global tensor, in pieces. Padding beyond the global edge
// is 0.
#include <algorithm>

#include "base/philox.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/global_runs.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kPiece = 1024;

struct Place {
  uint64_t key;
  uint64_t step;
  uint64_t first;  // global index
};

void Uniform(const Place& place, float* out, int64_t count) {
  uint32_t bits[kPiece];
  VecPhilox(place.key, place.step, place.first, bits, count);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(UniformFromBits(bits[i]));
}

}  // namespace

KernelResult MakeNoise(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const uint64_t stream = StreamOf(spec.attrs.Str("name"));
  const bool normal = spec.attrs.Str("kind") == "normal";
  return MakeFunctionKernel([runs = GlobalRuns(block), stream, normal](
                                const RunContext& context, Inputs, Outputs outputs) -> Status {
    const int64_t length = runs.run_length();
    const int64_t pieces = (length + kPiece - 1) / kPiece;
    const auto fill = [&](int64_t item) {
      const int64_t first = item % pieces * kPiece;
      const GlobalRuns::Run run = runs.At(item / pieces, context.microbatch);
      const Place place{PhiloxKey(context.seed, stream), static_cast<uint64_t>(context.step),
                        static_cast<uint64_t>(run.global_start + first)};
      float* out = outputs[0].as<float>() + item / pieces * length + first;
      const int64_t piece = std::min(kPiece, length - first);
      const int64_t count = std::clamp<int64_t>(run.valid - first, 0, piece);
      std::fill(out + count, out + piece, 0.0f);
      if (normal) {
        VecNormal(place.key, place.step, place.first, 0.0f, 1.0f, out, count);
      } else {
        Uniform(place, out, count);
      }
    };
    ParallelRange(context, runs.runs() * pieces, RowGrain(std::min(length, kPiece)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t item = begin; item < end; ++item) fill(item);
                  });
    return {};
  });
}

}  // namespace meshwright::ops::cpu
