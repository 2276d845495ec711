// rotary: rotates the pairs (i, i + e/2) of every head by position times their angle (ir/rotary.h).
#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "ir/rotary.h"
#include "ops/reference/reference.h"
#include "ops/token_block.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
KernelResult Make(const KernelSpec& spec, const ShardBlock& block, TokenBlock block_of_tokens) {
  MW_ASSIGN_OR_RETURN(std::vector<double> frequencies,
                      ir::RotaryFrequencies(spec.attrs, block.local_dims[3] / 2));
  const double sign = spec.attrs.Int("inverse") != 0 ? -1.0 : 1.0;
  return MakeFunctionKernel([block, sign, frequencies = std::move(frequencies),
                             placed = std::move(block_of_tokens)](const RunContext&, Inputs inputs,
                                                                  Outputs outputs) -> Status {
    const ir::Dims& dims = block.local_dims;
    const int64_t half = dims[3] / 2;
    const int64_t tokens = dims[0] * dims[1];
    for (int64_t row = 0; row < tokens * dims[2]; ++row) {
      const T* x = inputs[0].as<T>() + row * dims[3];
      T* y = outputs[0].as<T>() + row * dims[3];
      const int64_t token = row / dims[2];
      const auto position = static_cast<double>(
          inputs.size() > 1 ? inputs[1].as<int32_t>()[token] : placed.PositionOf(token % dims[1]));
      for (int64_t i = 0; i < half; ++i) {
        const double angle = position * frequencies[static_cast<size_t>(i)];
        const double cosine = std::cos(angle);
        const double sine = sign * std::sin(angle);
        const double low = x[i];
        const double high = x[i + half];
        y[i] = static_cast<T>(low * cosine - high * sine);
        y[i + half] = static_cast<T>(high * cosine + low * sine);
      }
    }
    return {};
  });
}

}  // namespace

KernelResult MakeRotary(const KernelSpec& spec) {
  const ir::TensorType& type = spec.inputs[0];
  if (type.rank() != 4 || type.dims[3] % 2 != 0) {
    return Fail(InvalidArgument(
        fmt::format("rotary: needs [b, s, h, e] with even e, got {}", type.ToString())));
  }
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(type));
  if (block.global_dims[3] != block.local_dims[3]) {
    return Fail(InvalidArgument(fmt::format(
        "rotary: the head dim of {} is split; split batch, sequence or heads", type.ToString())));
  }
  MW_ASSIGN_OR_RETURN(const TokenBlock tokens, TokenBlock::Of(spec, block));
  return ForFloatType(spec, type.dtype,
                      [&](auto zero) { return Make<decltype(zero)>(spec, block, tokens); });
}

}  // namespace meshwright::ops::reference
