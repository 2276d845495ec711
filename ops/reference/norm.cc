// layer_norm, rms_norm and their gradients over the last dim.
//
// With xhat = (x - mean) * rstd, g = dy * w:  dx = (g - avg(g) - xhat * avg(g * xhat)) * rstd;
// rms_norm has no mean and no avg(g) term.
#include <cmath>
#include <vector>

#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

struct Rows {
  int64_t count = 0;
  int64_t width = 0;
};

Rows RowsOf(const ir::TensorType& type) {
  const size_t rank = type.dims.size();
  return {Product(type.dims, 0, rank - 1), type.dims[rank - 1]};
}

struct Moments {
  double mean = 0;
  double rstd = 0;
};

// has_mean: layer_norm; otherwise the mean is taken as 0.
template <typename T>
Moments RowMoments(const T* x, int64_t width, double eps, bool has_mean) {
  Moments result;
  if (has_mean) {
    for (int64_t i = 0; i < width; ++i) result.mean += static_cast<double>(x[i]);
    result.mean /= static_cast<double>(width);
  }
  double square = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double delta = static_cast<double>(x[i]) - result.mean;
    square += delta * delta;
  }
  result.rstd = 1.0 / std::sqrt(square / static_cast<double>(width) + eps);
  return result;
}

template <typename T>
KernelResult MakeForward(const KernelSpec& spec, bool has_mean) {
  const Rows rows = RowsOf(spec.inputs[0]);
  const double eps = spec.attrs.Real("eps");
  return MakeFunctionKernel(
      [rows, eps, has_mean](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        const T* w = inputs[1].as<T>();
        const T* b = has_mean ? inputs[2].as<T>() : nullptr;
        for (int64_t r = 0; r < rows.count; ++r) {
          const T* x = inputs[0].as<T>() + r * rows.width;
          T* y = outputs[0].as<T>() + r * rows.width;
          const Moments moments = RowMoments(x, rows.width, eps, has_mean);
          for (int64_t i = 0; i < rows.width; ++i) {
            const double normal = (static_cast<double>(x[i]) - moments.mean) * moments.rstd;
            y[i] = static_cast<T>(normal * w[i] + (b ? static_cast<double>(b[i]) : 0.0));
          }
          if (has_mean) outputs[1].as<T>()[r] = static_cast<T>(moments.mean);
          outputs[has_mean ? 2 : 1].as<T>()[r] = static_cast<T>(moments.rstd);
        }
        return {};
      });
}

template <typename T>
struct GradRow {
  const T* x;
  const T* w;
  const T* dy;
  T* dx;
  double mean;
  double rstd;
};

// Writes dx and adds the row's share of dw and db.
template <typename T>
void NormGradRow(const GradRow<T>& row, int64_t width, bool has_mean, double* dw, double* db) {
  double average = 0;
  double average_hat = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double hat = (row.x[i] - row.mean) * row.rstd;
    const double g = static_cast<double>(row.dy[i]) * row.w[i];
    average += g;
    average_hat += g * hat;
    dw[i] += row.dy[i] * hat;
    db[i] += row.dy[i];
  }
  average = has_mean ? average / static_cast<double>(width) : 0.0;
  average_hat /= static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i) {
    const double hat = (row.x[i] - row.mean) * row.rstd;
    const double g = static_cast<double>(row.dy[i]) * row.w[i];
    row.dx[i] = static_cast<T>((g - average - hat * average_hat) * row.rstd);
  }
}

// layer_norm_grad (x, w, mean, rstd, dy) -> (dx, dw, db); rms_norm_grad (x, w, rstd, dy) -> (dx,
// dw).
template <typename T>
KernelResult MakeGrad(const KernelSpec& spec, bool has_mean) {
  const Rows rows = RowsOf(spec.inputs[0]);
  const size_t width = static_cast<size_t>(rows.width);
  return MakeFunctionKernel(
      [rows, has_mean, dw = std::vector<double>(width), db = std::vector<double>(width)](
          const RunContext&, Inputs inputs, Outputs outputs) mutable -> Status {
        dw.assign(dw.size(), 0.0);
        db.assign(db.size(), 0.0);
        const T* rstd = inputs[has_mean ? 3 : 2].template as<T>();
        const T* dy = inputs[has_mean ? 4 : 3].template as<T>();
        for (int64_t r = 0; r < rows.count; ++r) {
          const int64_t first = r * rows.width;
          NormGradRow<T>(
              {inputs[0].as<T>() + first, inputs[1].as<T>(), dy + first, outputs[0].as<T>() + first,
               has_mean ? static_cast<double>(inputs[2].as<T>()[r]) : 0.0,
               static_cast<double>(rstd[r])},
              rows.width, has_mean, dw.data(), db.data());
        }
        for (size_t i = 0; i < dw.size(); ++i) {
          outputs[1].as<T>()[i] = static_cast<T>(dw[i]);
          if (has_mean) outputs[2].as<T>()[i] = static_cast<T>(db[i]);
        }
        return {};
      });
}

}  // namespace

KernelResult MakeNorm(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    if (spec.op == ir::Op::kLayerNorm) return MakeForward<T>(spec, true);
    if (spec.op == ir::Op::kRmsNorm) return MakeForward<T>(spec, false);
    return MakeGrad<T>(spec, spec.op == ir::Op::kLayerNormGrad);
  });
}

}  // namespace meshwright::ops::reference
