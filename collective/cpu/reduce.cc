#include "collective/cpu/reduce.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace meshwright::collective {
namespace {

// How a dtype is stored and what it is accumulated in.
template <typename T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static T Widen(T value) { return value; }
  static T Narrow(T value) { return value; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Wide = float;
  static float Widen(uint16_t value) { return Bf16ToFloat(value); }
  static uint16_t Narrow(float value) { return FloatToBf16(value); }
};
struct F16 {
  using Stored = uint16_t;
  using Wide = float;
  static float Widen(uint16_t value) { return F16ToFloat(value); }
  static uint16_t Narrow(float value) { return FloatToF16(value); }
};

struct Sum {
  template <typename T>
  static T Combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // wraps: signed overflow would be undefined
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <typename T>
  static T Combine(T a, T b) {
    return (b > a || b != b) ? b : a;  // a NaN in `a` survives: no comparison with it holds
  }
};
struct LogSumExp {
  template <typename T>
  static T Combine(T a, T b) {
    if (std::isnan(a) || std::isnan(b)) {
      return std::numeric_limits<T>::quiet_NaN();
    }
    const T high = a > b ? a : b;
    const T low = a > b ? b : a;
    return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
  }
};

template <typename Format>
void Load(void* accumulator, const void* piece, int64_t count) {
  auto* wide = static_cast<typename Format::Wide*>(accumulator);
  const auto* stored = static_cast<const typename Format::Stored*>(piece);
  for (int64_t i = 0; i < count; ++i) {
    wide[i] = Format::Widen(stored[i]);
  }
}

template <typename Format, typename Op>
void Add(void* accumulator, const void* piece, int64_t count) {
  auto* __restrict wide = static_cast<typename Format::Wide*>(accumulator);
  const auto* __restrict stored = static_cast<const typename Format::Stored*>(piece);
  for (int64_t i = 0; i < count; ++i) {
    wide[i] = Op::Combine(wide[i], Format::Widen(stored[i]));
  }
}

template <typename Format>
void Store(void* output, const void* accumulator, int64_t count) {
  auto* stored = static_cast<typename Format::Stored*>(output);
  const auto* wide = static_cast<const typename Format::Wide*>(accumulator);
  for (int64_t i = 0; i < count; ++i) {
    stored[i] = Format::Narrow(wide[i]);
  }
}

template <typename Format>
ReduceKernel Find(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return {Load<Format>, Add<Format, Sum>, Store<Format>};
    case Reduction::kMax:
      return {Load<Format>, Add<Format, Max>, Store<Format>};
    case Reduction::kLogSumExp:
      if constexpr (std::is_floating_point_v<typename Format::Wide>) {
        return {Load<Format>, Add<Format, LogSumExp>, Store<Format>};
      }
  }
  return {};
}

ReduceKernel FindOrEmpty(ir::DType dtype, Reduction reduction) {
  switch (dtype) {
    case ir::DType::kF32:
      return Find<Plain<float>>(reduction);
    case ir::DType::kF64:
      return Find<Plain<double>>(reduction);
    case ir::DType::kBF16:
      return Find<Bf16>(reduction);
    case ir::DType::kF16:
      return Find<F16>(reduction);
    case ir::DType::kI32:
      return Find<Plain<int32_t>>(reduction);
    case ir::DType::kI64:
      return Find<Plain<int64_t>>(reduction);
    case ir::DType::kBool:
      break;
  }
  return {};
}

}  // namespace

Result<ReduceKernel> FindReduceKernel(ir::DType dtype, Reduction reduction) {
  const ReduceKernel kernel = FindOrEmpty(dtype, reduction);
  if (kernel.add == nullptr) {
    return Fail(InvalidArgument(fmt::format(
        "reduction {} of {} is not defined; sum and max take f32 f64 bf16 f16 i32 i64, log-sum-exp "
        "the floating ones",
        static_cast<int>(reduction), ir::DTypeName(dtype))));
  }
  return kernel;
}

// bf16 and f16 double in width when accumulated.
Accumulator::Accumulator(int64_t max_piece_bytes)
    : memory_(std::make_unique<double[]>(static_cast<size_t>(max_piece_bytes / 4 + 1))) {}

}  // namespace meshwright::collective
