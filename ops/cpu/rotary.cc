// rotary with the angles of every position that the device has tabulated at load, or of those that
// each run tells.
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

// cosine[e/2] then sine[e/2] of each of some positions.
class Angles {
 public:
  Angles(const KernelSpec& spec, std::vector<double> frequencies, int64_t positions)
      : sign_(spec.attrs.Int("inverse") != 0 ? -1.0 : 1.0),
        half_(static_cast<int64_t>(frequencies.size())),
        frequencies_(std::move(frequencies)),
        table_(static_cast<size_t>(2 * positions * half_)) {}

  void Set(int64_t place, int64_t position) {
    float* cosine = table_.data() + 2 * place * half_;
    for (int64_t i = 0; i < half_; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[static_cast<size_t>(i)];
      cosine[i] = static_cast<float>(std::cos(angle));
      cosine[half_ + i] = static_cast<float>(sign_ * std::sin(angle));
    }
  }

  const float* CosineOf(int64_t place) const { return table_.data() + 2 * place * half_; }

 private:
  double sign_ = 1;
  int64_t half_ = 0;
  std::vector<double> frequencies_;
  std::vector<float> table_;
};

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

// The angles are those of the block's positions, or, where the op is told positions, of each run's.
template <typename T>
KernelResult MakeRotaryOf(const ir::Dims& dims, Angles tabulated) {
  return MakeFunctionKernel(
      [dims, angles = std::move(tabulated)](const RunContext& context, Inputs inputs,
                                            Outputs outputs) mutable -> Status {
        const TokenShape shape{dims[2], dims[3] / 2};
        const int32_t* positions = inputs.size() > 1 ? inputs[1].template as<int32_t>() : nullptr;
        ParallelRange(context, dims[0] * dims[1], RowGrain(shape.elements()),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t token = begin; token < end; ++token) {
                          const int64_t place = positions != nullptr ? token : token % dims[1];
                          if (positions != nullptr) angles.Set(place, positions[token]);
                          const float* cosine = angles.CosineOf(place);
                          const int64_t at = token * shape.elements();
                          Rotate(shape, cosine, cosine + shape.half,
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
  MW_ASSIGN_OR_RETURN(std::vector<double> frequencies, ir::RotaryFrequencies(spec.attrs, half));
  const bool told = spec.inputs.size() > 1;
  Angles angles(spec, std::move(frequencies), told ? dims[0] * dims[1] : dims[1]);
  for (int64_t p = 0; !told && p < dims[1]; ++p) angles.Set(p, tokens.PositionOf(p));
  if (spec.inputs[0].dtype == ir::DType::kBF16) {
    return MakeRotaryOf<uint16_t>(dims, std::move(angles));
  }
  return MakeRotaryOf<float>(dims, std::move(angles));
}

}  // namespace meshwright::ops::cpu
