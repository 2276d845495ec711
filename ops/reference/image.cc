// Convolution of images [b, h, w, c] and its gradients, window_argmax, avg_pool and its gradient.
#include <algorithm>
#include <array>
#include <cmath>

#include "ir/images.h"
#include "ops/parallel.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

using ir::Windows;

// Part of a window that lies on the image, along height or width: taps [begin, end) and the place
// of tap 0, which may be outside.
struct Taps {
  int64_t begin;
  int64_t end;
  int64_t place;
};

Taps TapsOf(const Windows& windows, size_t dim, int64_t window, int64_t extent) {
  const int64_t place = window * windows.strides[dim] - windows.before[dim];
  return {std::max<int64_t>(0, -place), std::min(windows.size[dim], extent - place), place};
}

// Calls body(y, x, ky, kx) for the places (y, x) of the image under window (oy, ox).
template <typename Body>
void ForEachTap(const Windows& windows, const ir::Dims& image, int64_t oy, int64_t ox,
                const Body& body) {
  const Taps rows = TapsOf(windows, 0, oy, image[1]);
  const Taps columns = TapsOf(windows, 1, ox, image[2]);
  for (int64_t ky = rows.begin; ky < rows.end; ++ky) {
    for (int64_t kx = columns.begin; kx < columns.end; ++kx) {
      body(rows.place + ky, columns.place + kx, ky, kx);
    }
  }
}

struct Shapes {
  ir::Dims x, k, y;
  Windows windows;

  int64_t X(int64_t b, int64_t row, int64_t column) const {
    return ((b * x[1] + row) * x[2] + column) * x[3];
  }
  int64_t Y(int64_t b, int64_t row, int64_t column) const {
    return ((b * y[1] + row) * y[2] + column) * y[3];
  }
  int64_t K(int64_t row, int64_t column, int64_t channel) const {
    return ((row * k[1] + column) * k[2] + channel) * k[3];
  }
};

Shapes ShapesOf(const KernelSpec& spec) {
  Shapes shapes;
  const ir::Dims& a = spec.inputs[0].dims;
  const ir::Dims& b = spec.inputs[1].dims;
  const ir::Dims& result = spec.outputs[0].dims;
  switch (spec.op) {
    case ir::Op::kConv2d:
      shapes = {a, b, result, {}};
      break;
    case ir::Op::kConv2dGradInput:
      shapes = {result, a, b, {}};
      break;
    default:
      shapes = {a, result, b, {}};
  }
  shapes.windows = Windows::Of(spec.attrs, {shapes.k[0], shapes.k[1]});
  return shapes;
}

// One result at a time, its sum in double.
template <typename T>
KernelResult MakeForward(const Shapes& s) {
  return MakeFunctionKernel(
      [s](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const T* x = inputs[0].as<T>();
        const T* k = inputs[1].as<T>();
        ParallelItems(context, s.y[0] * s.y[1], [&](int64_t item) {
          T* y = outputs[0].as<T>() + item * s.y[2] * s.y[3];
          const int64_t b = item / s.y[1];
          for (int64_t at = 0; at < s.y[2] * s.y[3]; ++at) {
            double sum = 0;
            ForEachTap(s.windows, s.x, item % s.y[1], at / s.y[3],
                       [&](int64_t row, int64_t column, int64_t ky, int64_t kx) {
                         const T* values = x + s.X(b, row, column);
                         const T* weights = k + s.K(ky, kx, 0) + at % s.y[3];
                         for (int64_t i = 0; i < s.x[3]; ++i) {
                           sum += static_cast<double>(values[i]) *
                                  static_cast<double>(weights[i * s.y[3]]);
                         }
                       });
            y[at] = static_cast<T>(sum);
          }
        });
        return {};
      });
}

// The window along a dim whose tap `tap` lies on `place`; -1: none.
int64_t WindowAt(const Windows& windows, size_t dim, int64_t place, int64_t tap, int64_t count) {
  const int64_t from = place + windows.before[dim] - tap;
  if (from < 0 || from % windows.strides[dim] != 0) return -1;
  const int64_t window = from / windows.strides[dim];
  return window < count ? window : -1;
}

template <typename T>
double GradOfPlace(const Shapes& s, const T* k, const T* dy, const std::array<int64_t, 4>& at) {
  const auto [b, row, column, i] = at;
  double sum = 0;
  for (int64_t tap = 0; tap < s.k[0] * s.k[1]; ++tap) {
    const int64_t oy = WindowAt(s.windows, 0, row, tap / s.k[1], s.y[1]);
    const int64_t ox = WindowAt(s.windows, 1, column, tap % s.k[1], s.y[2]);
    if (oy < 0 || ox < 0) continue;
    const T* weights = k + s.K(tap / s.k[1], tap % s.k[1], i);
    const T* grads = dy + s.Y(b, oy, ox);
    for (int64_t o = 0; o < s.y[3]; ++o) {
      sum += static_cast<double>(grads[o]) * static_cast<double>(weights[o]);
    }
  }
  return sum;
}

template <typename T>
KernelResult MakeGradInput(const Shapes& s) {
  return MakeFunctionKernel(
      [s](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const T* k = inputs[0].as<T>();
        const T* dy = inputs[1].as<T>();
        ParallelItems(context, s.x[0] * s.x[1], [&](int64_t item) {
          T* dx = outputs[0].as<T>() + item * s.x[2] * s.x[3];
          for (int64_t at = 0; at < s.x[2] * s.x[3]; ++at) {
            dx[at] = static_cast<T>(
                GradOfPlace<T>(s, k, dy, {item / s.x[1], item % s.x[1], at / s.x[3], at % s.x[3]}));
          }
        });
        return {};
      });
}

// All images and windows in their order.
template <typename T>
double GradOfWeight(const Shapes& s, const T* x, const T* dy, const std::array<int64_t, 4>& at) {
  const auto [ky, kx, i, o] = at;
  double sum = 0;
  for (int64_t window = 0; window < s.y[0] * s.y[1] * s.y[2]; ++window) {
    const int64_t b = window / (s.y[1] * s.y[2]);
    const int64_t row = window / s.y[2] % s.y[1] * s.windows.strides[0] - s.windows.before[0] + ky;
    const int64_t column = window % s.y[2] * s.windows.strides[1] - s.windows.before[1] + kx;
    if (row < 0 || row >= s.x[1] || column < 0 || column >= s.x[2]) continue;
    sum += static_cast<double>(x[s.X(b, row, column) + i]) *
           static_cast<double>(dy[window * s.y[3] + o]);
  }
  return sum;
}

template <typename T>
KernelResult MakeGradKernel(const Shapes& s) {
  return MakeFunctionKernel(
      [s](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const T* x = inputs[0].as<T>();
        const T* dy = inputs[1].as<T>();
        const int64_t channels = s.k[2] * s.k[3];
        ParallelItems(context, s.k[0] * s.k[1], [&](int64_t item) {
          T* dk = outputs[0].as<T>() + item * channels;
          for (int64_t at = 0; at < channels; ++at) {
            dk[at] = static_cast<T>(GradOfWeight<T>(
                s, x, dy, {item / s.k[1], item % s.k[1], at / s.k[3], at % s.k[3]}));
          }
        });
        return {};
      });
}

// `image`: the tensor that windows lie over; `pooled`: one element per window and channel.
struct Pooling {
  ir::Dims image, pooled;
  Windows windows;

  int64_t Image(int64_t b, int64_t row, int64_t column, int64_t c) const {
    return ((b * image[1] + row) * image[2] + column) * image[3] + c;
  }
};

template <typename T>
bool Beats(T value, T largest) {
  return std::isnan(value) ? !std::isnan(largest) : value > largest;
}

template <typename T>
KernelResult MakeArgmaxOf(const Pooling& p) {
  return MakeFunctionKernel(
      [p](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const T* x = inputs[0].as<T>();
        int32_t* out = outputs[0].as<int32_t>();
        const int64_t channels = p.image[3];
        ParallelItems(context, p.pooled[0] * p.pooled[1], [&](int64_t item) {
          const int64_t b = item / p.pooled[1];
          for (int64_t at = 0; at < p.pooled[2] * channels; ++at) {
            const int64_t c = at % channels;
            int64_t best = -1;
            T largest = 0;
            ForEachTap(p.windows, p.image, item % p.pooled[1], at / channels,
                       [&](int64_t row, int64_t column, int64_t, int64_t) {
                         const T value = x[p.Image(b, row, column, c)];
                         if (best >= 0 && !Beats(value, largest)) return;
                         best = row * p.image[2] + column;
                         largest = value;
                       });
            out[item * p.pooled[2] * channels + at] = static_cast<int32_t>(best);
          }
        });
        return {};
      });
}

template <typename T>
KernelResult MakeAvgPoolOf(const Pooling& p) {
  const double share = 1.0 / static_cast<double>(p.windows.size[0] * p.windows.size[1]);
  return MakeFunctionKernel(
      [p, share](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const T* x = inputs[0].as<T>();
        const int64_t channels = p.image[3];
        ParallelItems(context, p.pooled[0] * p.pooled[1], [&](int64_t item) {
          T* out = outputs[0].as<T>() + item * p.pooled[2] * channels;
          for (int64_t at = 0; at < p.pooled[2] * channels; ++at) {
            double sum = 0;
            ForEachTap(p.windows, p.image, item % p.pooled[1], at / channels,
                       [&](int64_t row, int64_t column, int64_t, int64_t) {
                         sum += static_cast<double>(
                             x[p.Image(item / p.pooled[1], row, column, at % channels)]);
                       });
            out[at] = static_cast<T>(sum * share);
          }
        });
        return {};
      });
}

template <typename T>
KernelResult MakeAvgPoolGradOf(const Pooling& p) {
  const double share = 1.0 / static_cast<double>(p.windows.size[0] * p.windows.size[1]);
  return MakeFunctionKernel(
      [p, share](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int64_t channels = p.image[3];
        const int64_t size = p.image[1] * p.image[2] * channels;
        const int64_t windows = p.pooled[1] * p.pooled[2];
        ParallelItems(context, p.image[0], [&](int64_t b) {
          T* dx = outputs[0].as<T>() + b * size;
          std::fill_n(dx, size, T{0});
          for (int64_t window = 0; window < windows; ++window) {
            const T* dy = inputs[0].as<T>() + (b * windows + window) * channels;
            ForEachTap(p.windows, p.image, window / p.pooled[2], window % p.pooled[2],
                       [&](int64_t row, int64_t column, int64_t, int64_t) {
                         T* to = dx + p.Image(0, row, column, 0);
                         for (int64_t c = 0; c < channels; ++c) {
                           to[c] += static_cast<T>(static_cast<double>(dy[c]) * share);
                         }
                       });
          }
        });
        return {};
      });
}

}  // namespace

KernelResult MakeConv(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    const Shapes shapes = ShapesOf(spec);
    if (spec.op == ir::Op::kConv2d) return MakeForward<T>(shapes);
    if (spec.op == ir::Op::kConv2dGradInput) return MakeGradInput<T>(shapes);
    return MakeGradKernel<T>(shapes);
  });
}

KernelResult MakePool(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    const Windows windows = Windows::Of(spec.attrs);
    const ir::Dims& x = spec.inputs[0].dims;
    const ir::Dims& y = spec.outputs[0].dims;
    if (spec.op == ir::Op::kAvgPoolGrad) return MakeAvgPoolGradOf<T>({y, x, windows});
    if (spec.op == ir::Op::kAvgPool) return MakeAvgPoolOf<T>({x, y, windows});
    return MakeArgmaxOf<T>({x, y, windows});
  });
}

}  // namespace meshwright::ops::reference
