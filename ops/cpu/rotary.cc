// rotary with the angles of every position that the device meets (in any microbatch) tabulated at
// load.
#include <cmath>
#include <vector>

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

// cosine[s, e/2] then sine[s, e/2] of positions first, first + 1, ...
std::vector<float> AngleTable(const KernelSpec& spec, int64_t first, int64_t positions,
                              int64_t half) {
  const double base = spec.attrs.Real("base", 10000.0);
  const double sign = spec.attrs.Int("inverse") != 0 ? -1.0 : 1.0;
  std::vector<float> table(static_cast<size_t>(2 * positions * half));
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(first + p) * frequency;
      table[static_cast<size_t>(p * half + i)] = static_cast<float>(std::cos(angle));
      table[static_cast<size_t>((positions + p) * half + i)] =
          static_cast<float>(sign * std::sin(angle));
    }
  }
  return table;
}

}  // namespace

KernelResult MakeRotary(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  if (dims.size() != 4 || dims[3] % 2 != 0) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  if (block.global_dims[3] != dims[3]) return std::unique_ptr<Kernel>();
  const int64_t half = dims[3] / 2;
  const int64_t first = block.Start(1, 0);
  const int64_t positions = block.Start(1, spec.coords.microbatches - 1) - first + dims[1];
  return MakeFunctionKernel(
      [dims, half, positions, micro_stride = block.offsets.micro_stride[1],
       table = AngleTable(spec, first, positions, half)](const RunContext& context, Inputs inputs,
                                                         Outputs outputs) -> Status {
        const int64_t token_elements = dims[2] * dims[3];
        const int64_t shift = micro_stride * context.microbatch;
        ParallelRange(context, dims[0] * dims[1], RowGrain(token_elements),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t token = begin; token < end; ++token) {
                          const int64_t position = token % dims[1];
                          const float* cosine = table.data() + (shift + position) * half;
                          const float* sine = cosine + positions * half;
                          for (int64_t j = 0; j < dims[2]; ++j) {
                            const int64_t at = token * token_elements + j * dims[3];
                            VecRotate(inputs[0].as<float>() + at, cosine, sine,
                                      outputs[0].as<float>() + at, half);
                          }
                        }
                      });
        return {};
      });
}

}  // namespace meshwright::ops::cpu
