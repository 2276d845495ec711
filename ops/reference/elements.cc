#include "ops/reference/elements.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
struct Half {
  uint16_t bits;
};
struct IsBf16;
struct IsF16;

double ToDouble(double x) { return x; }
double ToDouble(float x) { return static_cast<double>(x); }
double ToDouble(int32_t x) { return x; }
double ToDouble(int64_t x) { return static_cast<double>(x); }
double ToDouble(bool x) { return x ? 1 : 0; }
double ToDouble(Half<IsBf16> x) { return static_cast<double>(Bf16ToFloat(x.bits)); }
double ToDouble(Half<IsF16> x) { return static_cast<double>(F16ToFloat(x.bits)); }

template <typename T>
T ToInteger(double x) {
  if (std::isnan(x)) return 0;
  // The largest number of 64 bits is no double; the next one is.
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(x);
}

void FromDouble(double x, double& to) { to = x; }
void FromDouble(double x, float& to) { to = static_cast<float>(x); }
void FromDouble(double x, int32_t& to) { to = ToInteger<int32_t>(x); }
void FromDouble(double x, int64_t& to) { to = ToInteger<int64_t>(x); }
void FromDouble(double x, bool& to) { to = x != 0; }
void FromDouble(double x, Half<IsBf16>& to) { to.bits = FloatToBf16(static_cast<float>(x)); }
void FromDouble(double x, Half<IsF16>& to) { to.bits = FloatToF16(static_cast<float>(x)); }

// Calls body(T{}) with the type of the elements.
template <typename Body>
void ForElement(ir::DType dtype, const Body& body) {
  switch (dtype) {
    case ir::DType::kF64:
      return body(double{});
    case ir::DType::kF32:
      return body(float{});
    case ir::DType::kBF16:
      return body(Half<IsBf16>{});
    case ir::DType::kF16:
      return body(Half<IsF16>{});
    case ir::DType::kI32:
      return body(int32_t{});
    case ir::DType::kI64:
      return body(int64_t{});
    case ir::DType::kBool:
      return body(bool{});
  }
}

}  // namespace

void LoadBlock(const Tensor& x, int64_t first, int64_t count, double* to) {
  const int64_t period = x.elements();
  ForElement(x.type->dtype, [&](auto zero) {
    const auto* from = x.as<decltype(zero)>();
    for (int64_t done = 0; done < count;) {
      const int64_t at = (first + done) % period;
      const int64_t part = std::min(count - done, period - at);
      for (int64_t i = 0; i < part; ++i) to[done + i] = ToDouble(from[at + i]);
      done += part;
    }
  });
}

void StoreBlock(const double* from, const Tensor& out, int64_t first, int64_t count) {
  ForElement(out.type->dtype, [&](auto zero) {
    auto* to = out.as<decltype(zero)>() + first;
    for (int64_t i = 0; i < count; ++i) FromDouble(from[i], to[i]);
  });
}

}  // namespace meshwright::ops::reference
