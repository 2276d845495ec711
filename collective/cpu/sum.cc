#include "collective/cpu/sum.h"

#include <algorithm>

namespace meshwright::collective {
namespace {

#define MW_INLINE [[gnu::always_inline]] inline

// kOutputs is 1 or kInputs: then the outputs are the inputs.
template <int kInputs, int kOutputs>
MW_INLINE void SumFew(float* const* inputs, float* const* outputs, int64_t count) {
  float* in[kInputs];
  float* out[kOutputs];
  std::copy_n(inputs, kInputs, in);
  std::copy_n(outputs, kOutputs, out);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float sum = in[0][i];
    for (int k = 1; k < kInputs; ++k) {
      sum += in[k][i];
    }
    for (int k = 0; k < kOutputs; ++k) {
      out[k][i] = sum;
    }
  }
}

// Tile by tile, so that the sum stays in the first-level cache.
MW_INLINE void SumMany(std::span<float* const> inputs, std::span<float* const> outputs,
                       int64_t count) {
  constexpr int64_t kTile = 512;
  float sum[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t tile = std::min(kTile, count - begin);
    std::copy_n(inputs[0] + begin, tile, sum);
    for (size_t k = 1; k < inputs.size(); ++k) {
      const float* in = inputs[k] + begin;
      for (int64_t i = 0; i < tile; ++i) {
        sum[i] += in[i];
      }
    }
    for (float* out : outputs) {
      std::copy_n(sum, tile, out + begin);
    }
  }
}

MW_INLINE void Sum(std::span<float* const> inputs, std::span<float* const> outputs, int64_t count) {
  const bool to_all = outputs.size() == inputs.size();
  if (inputs.size() == 2 && to_all) {
    SumFew<2, 2>(inputs.data(), outputs.data(), count);
  } else if (inputs.size() == 4 && to_all) {
    SumFew<4, 4>(inputs.data(), outputs.data(), count);
  } else if (inputs.size() == 2 && outputs.size() == 1) {
    SumFew<2, 1>(inputs.data(), outputs.data(), count);
  } else if (inputs.size() == 4 && outputs.size() == 1) {
    SumFew<4, 1>(inputs.data(), outputs.data(), count);
  } else {
    SumMany(inputs, outputs, count);
  }
}

#undef MW_INLINE

#if defined(__x86_64__)
[[gnu::target("avx2")]] void SumAvx2(std::span<float* const> inputs,
                                     std::span<float* const> outputs, int64_t count) {
  Sum(inputs, outputs, count);
}
#endif

}  // namespace

void SumFloats(std::span<float* const> inputs, std::span<float* const> outputs, int64_t count) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) {
    SumAvx2(inputs, outputs, count);
    return;
  }
#endif
  Sum(inputs, outputs, count);
}

}  // namespace meshwright::collective
