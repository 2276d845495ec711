// rotary with the angles of every position that the device has tabulated at load.
#include <cmath>
#include <utility>
#include <vector>

#include "ir/rotary.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_half.h"
#include "ops/parallel.h"
#include "ops/token_block.h"

namespace meshwright::ops::cpu {
namespace {

// cosine[s, e/2] then sine[s, e/2] of the block's positions.
Result<std::vector<float>> AngleTable(const KernelSpec& spec, const TokenBlock& block,
                                      int64_t positions, int64_t half) {
  MW_ASSIGN_OR_RETURN(const std::vector<double> frequencies,
                      ir::RotaryFrequencies(spec.attrs, half));
  const double sign = spec.attrs.Int("inverse") != 0 ? -1.0 : 1.0;
  std::vector<float> table(static_cast<size_t>(2 * positions * half));
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = frequencies[static_cast<size_t>(i)];
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(block.PositionOf(p)) * frequency;
      table[static_cast<size_t>(p * half + i)] = static_cast<float>(std::cos(angle));
      table[static_cast<size_t>((positions + p) * half + i)] =
          static_cast<float>(sign * std::sin(angle));
    }
  }
  return table;
}

// One token's heads.
struct TokenShape {
  int64_t heads = 0;
  int64_t half = 0;  // of a head's elements
  int64_t elements() const { return 2 * heads * half; }
};

void Rotate(const TokenShape& token, const float* cosine, const float* sine, const float* x,
            float* out) {
  for (int64_t j = 0; j < token.elements(); j += 2 * token.half) {
    VecRotate(x + j, cosine, sine, out + j, token.half);
  }
}

void Rotate(const TokenShape& token, const float* cosine, const float* sine, const uint16_t* x,
            uint16_t* out) {
  float* wide = ThreadScratch(token.elements());
  VecWiden(x, wide, token.elements());
  Rotate(token, cosine, sine, wide, wide);
  VecNarrow(wide, out, token.elements());
}

template <typename T>
KernelResult MakeRotaryOf(const ir::Dims& dims, std::vector<float> table) {
  return MakeFunctionKernel([dims, table = std::move(table)](const RunContext& context,
                                                             Inputs inputs,
                                                             Outputs outputs) -> Status {
    const TokenShape shape{dims[2], dims[3] / 2};
    ParallelRange(context, dims[0] * dims[1], RowGrain(shape.elements()),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t token = begin; token < end; ++token) {
                      const float* cosine = table.data() + token % dims[1] * shape.half;
                      const int64_t at = token * shape.elements();
                      Rotate(shape, cosine, cosine + dims[1] * shape.half,
                             inputs[0].template as<T>() + at, outputs[0].template as<T>() + at);
                    }
                  });
    return {};
  });
}

}  // namespace

KernelResult MakeRotary(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  if (dims.size() != 4 || dims[3] % 2 != 0) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  if (block.global_dims[3] != dims[3]) return std::unique_ptr<Kernel>();
  const int64_t half = dims[3] / 2;
  MW_ASSIGN_OR_RETURN(const TokenBlock tokens, TokenBlock::Of(spec, block));
  MW_ASSIGN_OR_RETURN(std::vector<float> table, AngleTable(spec, tokens, dims[1], half));
  if (spec.inputs[0].dtype == ir::DType::kBF16) {
    return MakeRotaryOf<uint16_t>(dims, std::move(table));
  }
  return MakeRotaryOf<float>(dims, std::move(table));
}

}  // namespace meshwright::ops::cpu
