// add, mul, sub, scale, mul_scalar, sum, gelu, silu, their gradients, and dropout.
#include <cmath>

#include "base/philox.h"
#include "ops/dropout_mask.h"
#include "ops/global_runs.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

// out[i] = f(x[i], y[i % n]): y's shape is a suffix of x's.
template <typename T, typename F>
KernelResult MakeBinary(F f) {
  return MakeFunctionKernel([f](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const T* x = inputs[0].as<T>();
    const T* y = inputs[1].as<T>();
    T* out = outputs[0].as<T>();
    const int64_t period = inputs[1].elements();
    const int64_t rows = period == 0 ? 0 : inputs[0].elements() / period;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < period; ++i) out[r * period + i] = f(x[r * period + i], y[i]);
    }
    return {};
  });
}

template <typename T, typename F>
KernelResult MakeUnary(F f) {
  return MakeFunctionKernel([f](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const T* x = inputs[0].as<T>();
    T* out = outputs[0].as<T>();
    const int64_t count = outputs[0].elements();
    for (int64_t i = 0; i < count; ++i) out[i] = f(x[i]);
    return {};
  });
}

template <typename T>
KernelResult MakeMulScalar() {
  return MakeFunctionKernel([](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const T* x = inputs[0].as<T>();
    const T c = *inputs[1].as<T>();
    T* out = outputs[0].as<T>();
    const int64_t count = outputs[0].elements();
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] * c;
    return {};
  });
}

template <typename T>
KernelResult MakeSum() {
  return MakeFunctionKernel([](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    const int64_t count = outputs[0].elements();
    for (int64_t i = 0; i < count; ++i) {
      double total = static_cast<double>(inputs[0].as<T>()[i]);
      for (size_t k = 1; k < inputs.size(); ++k) total += static_cast<double>(inputs[k].as<T>()[i]);
      out[i] = static_cast<T>(total);
    }
    return {};
  });
}

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

double Gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x)));
}

double GeluSlope(double x) {
  const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const double inner = kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

double SiluSlope(double x) {
  const double s = 1.0 / (1.0 + std::exp(-x));
  return s * (1.0 + x * (1.0 - s));
}

template <typename T>
KernelResult MakeDropout(const KernelSpec& spec) {
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

template <typename T>
KernelResult Make(const KernelSpec& spec) {
  using ir::Op;
  switch (spec.op) {
    case Op::kAdd:
      return MakeBinary<T>([](T x, T y) { return x + y; });
    case Op::kMul:
      return MakeBinary<T>([](T x, T y) { return x * y; });
    case Op::kSub:
      return MakeBinary<T>([](T x, T y) { return x - y; });
    case Op::kScale: {
      const T factor = static_cast<T>(spec.attrs.Real("factor", 1));
      return MakeUnary<T>([factor](T x) { return x * factor; });
    }
    case Op::kMulScalar:
      return MakeMulScalar<T>();
    case Op::kSum:
      return MakeSum<T>();
    case Op::kGelu:
      return MakeUnary<T>([](T x) { return static_cast<T>(Gelu(static_cast<double>(x))); });
    case Op::kSilu:
      return MakeUnary<T>([](T x) { return static_cast<T>(Silu(static_cast<double>(x))); });
    case Op::kGeluGrad:
      return MakeBinary<T>(
          [](T x, T dy) { return static_cast<T>(GeluSlope(static_cast<double>(x)) * dy); });
    case Op::kSiluGrad:
      return MakeBinary<T>(
          [](T x, T dy) { return static_cast<T>(SiluSlope(static_cast<double>(x)) * dy); });
    default:
      return MakeDropout<T>(spec);
  }
}

}  // namespace

KernelResult MakeElementwise(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [&](auto zero) { return Make<decltype(zero)>(spec); });
}

}  // namespace meshwright::ops::reference
