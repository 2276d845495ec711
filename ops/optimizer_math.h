// The scalars of one AdamW step, shared by all backends.
// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR'19, algorithm 2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ir/attrs.h"
#include "ir/factored.h"

namespace meshwright::ops {

// p = keep*p - step_size * m / (sqrt(v)*root_scale + eps)
struct AdamWStep {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double multiplier = 0;  // of the gradient
  double keep = 1;        // 1 - lr * weight_decay
  double step_size = 0;   // lr / (1 - beta1^t)
  double root_scale = 1;  // 1 / sqrt(1 - beta2^t)
};

struct AdamWConfig {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;

  static AdamWConfig From(const ir::Attrs& attrs) {
    return {attrs.Real("beta1", 0.9), attrs.Real("beta2", 0.999), attrs.Real("eps", 1e-8),
            attrs.Real("weight_decay")};
  }
  // `step` is 0-based; bias correction uses t = step + 1.
  AdamWStep At(int64_t step, double lr, double multiplier) const {
    const double t = static_cast<double>(step + 1);
    return {beta1,
            beta2,
            eps,
            multiplier,
            1.0 - lr * weight_decay,
            lr / (1.0 - std::pow(beta1, t)),
            1.0 / std::sqrt(1.0 - std::pow(beta2, t))};
  }
};

// What an op sgd does: with sign_beta by the sign of a mean (ir/schema_optimizer.cc).
struct SgdConfig {
  double momentum = 0;
  double weight_decay = 0;
  double sign_beta = -1;  // below 0: it is plain

  static SgdConfig From(const ir::Attrs& attrs) {
    return {attrs.Real("momentum"), attrs.Real("weight_decay"), attrs.Real("sign_beta", -1)};
  }
  bool by_sign() const { return sign_beta >= 0; }
};

// Adafactor, of a param seen as `matrices` times rows x columns (ir/factored.h). Statistics are
// computed with in f64 by all backends of CPUs.
// Source: Shazeer & Stern, "Adafactor", ICML'18, algorithms 4 and 5.
struct AdafactorConfig {
  static constexpr double kLeastSquare = 1e-30;  // added to each
  static constexpr double kLeastScale = 1e-3;

  double decay_rate = 0;
  double clip_threshold = 0;
  double weight_decay = 0;
  bool scale_parameter = true;
  int64_t matrices = 1;
  int64_t rows = 1;
  int64_t columns = 1;

  static AdafactorConfig From(const ir::Attrs& attrs, const ir::Dims& dims) {
    AdafactorConfig config;
    config.decay_rate = attrs.Real("decay_rate", 0.8);
    config.clip_threshold = attrs.Real("clip_threshold", 1);
    config.weight_decay = attrs.Real("weight_decay");
    config.scale_parameter = attrs.Int("scale_parameter", 1) != 0;
    const int64_t matrix_dims = attrs.Int(ir::kMatrixDimsAttr);
    const int64_t row_dims = attrs.Int(ir::kRowDimsAttr);
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      int64_t& product = d < matrix_dims              ? config.matrices
                         : d < matrix_dims + row_dims ? config.rows
                                                      : config.columns;
      product *= dims[static_cast<size_t>(d)];
    }
    return config;
  }
  int64_t elements() const { return matrices * rows * columns; }
  double Decay(int64_t step) const {
    return 1.0 - std::pow(static_cast<double>(step + 1), -decay_rate);
  }
  // The rate of a step, of the sum of squares of the param.
  double Rate(double lr, double param_squares) const {
    if (!scale_parameter) return lr;
    return lr * std::max(kLeastScale, std::sqrt(param_squares / static_cast<double>(elements())));
  }
  // What the update is divided by, of the sum of its squares.
  double Clip(double update_squares) const {
    const double root = std::sqrt(update_squares / static_cast<double>(elements()));
    return root / clip_threshold > 1.0 || std::isnan(root) ? root / clip_threshold : 1.0;
  }
};

}  // namespace meshwright::ops
