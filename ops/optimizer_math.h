// The scalars of one AdamW step, shared by all backends.
// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR'19, algorithm 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "ir/attrs.h"

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

}  // namespace meshwright::ops
