// clip_multiplier, adamw, sgd, lion, adafactor.
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/half.h"
#include "ops/optimizer_math.h"
#include "ops/reference/reference.h"
#include "ops/skipping.h"

namespace meshwright::ops::reference {
namespace {

// Without any counted token (count 0) there is no gradient either: multiplier and norm are 0. A
// norm that is NaN makes the multiplier NaN, so that divergence is seen.
template <typename T>
KernelResult MakeClipMultiplier(const KernelSpec& spec) {
  return MakeFunctionKernel([max_norm = spec.attrs.Real("max_norm")](
                                const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const double count = static_cast<double>(*inputs[1].as<T>());
    double norm = 0;
    double multiplier = 0;
    if (count != 0) {
      norm = std::sqrt(static_cast<double>(*inputs[0].as<T>())) / count;
      const double ratio = max_norm > 0 ? max_norm / (norm + 1e-6) : 1.0;
      multiplier = (ratio >= 1.0 ? 1.0 : ratio) / count;
    }
    *outputs[0].as<T>() = static_cast<T>(multiplier);
    *outputs[1].as<T>() = static_cast<T>(norm);
    return {};
  });
}

// What an optimizer remembers: in the type of the scalars, or in bf16.
template <typename T>
class Moment {
 public:
  static bool IsHalf(const KernelSpec& spec) { return spec.outputs[1].dtype == ir::DType::kBF16; }

  template <typename Tensor>
  static double Read(const Tensor& tensor, bool half, int64_t i) {
    if (half) return static_cast<double>(Bf16ToFloat(tensor.template as<uint16_t>()[i]));
    return static_cast<double>(tensor.template as<T>()[i]);
  }
  template <typename Tensor>
  static void Write(const Tensor& tensor, bool half, int64_t i, double value) {
    if (half) {
      tensor.template as<uint16_t>()[i] = FloatToBf16(static_cast<float>(value));
    } else {
      tensor.template as<T>()[i] = static_cast<T>(value);
    }
  }
};

template <typename T>
KernelResult MakeAdamW(const KernelSpec& spec) {
  return MakeFunctionKernel(
      [config = AdamWConfig::From(spec.attrs), half = Moment<T>::IsHalf(spec)](
          const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const double multiplier = static_cast<double>(*inputs[4].as<T>());
        const AdamWStep step =
            config.At(context.step, static_cast<double>(*inputs[5].as<T>()), multiplier);
        const int64_t count = inputs[0].elements();
        for (int64_t i = 0; i < count; ++i) {
          const double g = static_cast<double>(inputs[1].as<T>()[i]) * multiplier;
          const double m =
              step.beta1 * Moment<T>::Read(inputs[2], half, i) + (1.0 - step.beta1) * g;
          const double v =
              step.beta2 * Moment<T>::Read(inputs[3], half, i) + (1.0 - step.beta2) * g * g;
          const double p = step.keep * inputs[0].as<T>()[i];
          outputs[0].as<T>()[i] =
              static_cast<T>(p - step.step_size * m / (std::sqrt(v) * step.root_scale + step.eps));
          Moment<T>::Write(outputs[1], half, i, m);
          Moment<T>::Write(outputs[2], half, i, v);
        }
        return {};
      });
}

// Weight decay is added to the gradient, before the momentum.
template <typename T>
KernelResult MakeSgd(const KernelSpec& spec) {
  return MakeFunctionKernel([momentum = spec.attrs.Real("momentum"),
                             decay = spec.attrs.Real("weight_decay"),
                             half = Moment<T>::IsHalf(spec)](const RunContext&, Inputs inputs,
                                                             Outputs outputs) -> Status {
    const double multiplier = static_cast<double>(*inputs[3].as<T>());
    const double lr = static_cast<double>(*inputs[4].as<T>());
    const int64_t count = inputs[0].elements();
    for (int64_t i = 0; i < count; ++i) {
      const double p = inputs[0].as<T>()[i];
      const double g = static_cast<double>(inputs[1].as<T>()[i]) * multiplier + decay * p;
      const double m = momentum * Moment<T>::Read(inputs[2], half, i) + g;
      outputs[0].as<T>()[i] = static_cast<T>(p - lr * m);
      Moment<T>::Write(outputs[1], half, i, m);
    }
    return {};
  });
}

// A mean that is NaN makes the weight NaN, so that divergence is seen.
template <typename T>
KernelResult MakeLion(const KernelSpec& spec) {
  return MakeFunctionKernel([config = SgdConfig::From(spec.attrs), half = Moment<T>::IsHalf(spec)](
                                const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const double multiplier = static_cast<double>(*inputs[3].as<T>());
    const double lr = static_cast<double>(*inputs[4].as<T>());
    const int64_t count = inputs[0].elements();
    for (int64_t i = 0; i < count; ++i) {
      const double g = static_cast<double>(inputs[1].as<T>()[i]) * multiplier;
      const double m = Moment<T>::Read(inputs[2], half, i);
      const double mean = config.sign_beta * m + (1.0 - config.sign_beta) * g;
      const double sign = mean > 0 ? 1.0 : mean < 0 ? -1.0 : mean;
      const double p = inputs[0].as<T>()[i] * (1.0 - lr * config.weight_decay);
      outputs[0].as<T>()[i] = static_cast<T>(p - lr * sign);
      Moment<T>::Write(outputs[1], half, i, config.momentum * m + (1.0 - config.momentum) * g);
    }
    return {};
  });
}

// Means of the squares over columns and over rows, decayed.
template <typename T>
void RenewAdafactorMeans(const AdafactorConfig& config, double decay, double multiplier,
                         Inputs inputs, Outputs outputs) {
  const T* g = inputs[1].as<T>();
  const auto square = [&](int64_t b, int64_t r, int64_t c) {
    const double scaled =
        static_cast<double>(g[(b * config.rows + r) * config.columns + c]) * multiplier;
    return scaled * scaled + AdafactorConfig::kLeastSquare;
  };
  const auto renew = [&](size_t state, int64_t at, double mean) {
    const double old = static_cast<double>(inputs[1 + state].as<T>()[at]);
    outputs[state].as<T>()[at] = static_cast<T>(decay * old + (1.0 - decay) * mean);
  };
  for (int64_t b = 0; b < config.matrices; ++b) {
    for (int64_t r = 0; r < config.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < config.columns; ++c) sum += square(b, r, c);
      renew(1, b * config.rows + r, sum / static_cast<double>(config.columns));
    }
    for (int64_t c = 0; c < config.columns; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < config.rows; ++r) sum += square(b, r, c);
      renew(2, b * config.columns + c, sum / static_cast<double>(config.rows));
    }
  }
}

template <typename T>
KernelResult MakeAdafactor(const KernelSpec& spec) {
  return MakeFunctionKernel([config = AdafactorConfig::From(spec.attrs, spec.inputs[0].dims)](
                                const RunContext& context, Inputs inputs,
                                Outputs outputs) -> Status {
    const double multiplier = static_cast<double>(*inputs[4].as<T>());
    RenewAdafactorMeans<T>(config, config.Decay(context.step), multiplier, inputs, outputs);
    std::vector<double> update;
    double update_squares = 0;
    double param_squares = 0;
    for (int64_t b = 0; b < config.matrices; ++b) {
      const T* rows = outputs[1].as<T>() + b * config.rows;
      const T* columns = outputs[2].as<T>() + b * config.columns;
      double mean = 0;
      for (int64_t r = 0; r < config.rows; ++r) mean += static_cast<double>(rows[r]);
      mean /= static_cast<double>(config.rows);
      for (int64_t r = 0; r < config.rows; ++r) {
        for (int64_t c = 0; c < config.columns; ++c) {
          const auto at = static_cast<int64_t>(update.size());
          const double g = static_cast<double>(inputs[1].as<T>()[at]) * multiplier;
          const double p = static_cast<double>(inputs[0].as<T>()[at]);
          update.push_back(
              g / std::sqrt(static_cast<double>(rows[r]) / mean * static_cast<double>(columns[c])));
          update_squares += update.back() * update.back();
          param_squares += p * p;
        }
      }
    }
    const double rate = config.Rate(static_cast<double>(*inputs[5].as<T>()), param_squares);
    const double share = rate / config.Clip(update_squares);
    for (size_t i = 0; i < update.size(); ++i) {
      const double p = static_cast<double>(inputs[0].as<T>()[i]);
      outputs[0].as<T>()[i] =
          static_cast<T>((1.0 - config.weight_decay * rate) * p - share * update[i]);
    }
    return {};
  });
}

}  // namespace

KernelResult MakeOptimizer(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    switch (spec.op) {
      case ir::Op::kClipMultiplier:
        return MakeClipMultiplier<T>(spec);
      case ir::Op::kAdamW:
        return Skipping(spec,
                        ir::IsFactored(spec.attrs) ? MakeAdafactor<T>(spec) : MakeAdamW<T>(spec));
      default:
        return Skipping(
            spec, SgdConfig::From(spec.attrs).by_sign() ? MakeLion<T>(spec) : MakeSgd<T>(spec));
    }
  });
}

}  // namespace meshwright::ops::reference
