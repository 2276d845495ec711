#include "ops/cpu/vec_math.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/cpu/vec_elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_math.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "hwy/contrib/math/math-inl.h"
#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename F>
HWY_INLINE void MapOne(const float* x, float* out, int64_t count, const F& f) {
  const FloatTag d;
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    StoreLanes(f(d, LoadLanes(d, x + i, lanes)), d, out + i, lanes);
  });
}

template <typename F>
HWY_INLINE void MapTwo(const float* x, const float* y, float* out, int64_t count, const F& f) {
  const FloatTag d;
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    StoreLanes(f(d, LoadLanes(d, x + i, lanes), LoadLanes(d, y + i, lanes)), d, out + i, lanes);
  });
}

// The library's functions are made for numbers of their range.
HWY_INLINE FloatVec KeepNaN(FloatVec x, FloatVec y) { return hn::IfThenElse(hn::IsNaN(x), x, y); }

HWY_INLINE FloatVec ExpOf(FloatTag d, FloatVec x) {
  constexpr float kLargest = 88.7228394f;  // ln of the largest float
  const FloatVec y = hn::Exp(d, hn::Min(x, hn::Set(d, kLargest)));
  const auto over = hn::Gt(x, hn::Set(d, kLargest));
  return KeepNaN(x, hn::IfThenElse(over, hn::Set(d, kInfinity), y));
}

HWY_INLINE FloatVec LogOf(FloatTag d, FloatVec x) {
  const FloatVec infinity = hn::Set(d, kInfinity);
  FloatVec y = hn::IfThenElse(hn::Eq(x, infinity), infinity, hn::Log(d, x));
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::NaN(d), y);
  return KeepNaN(x, y);
}

HWY_INLINE FloatVec Log1pOf(FloatTag d, FloatVec x) {
  const FloatVec infinity = hn::Set(d, kInfinity);
  const FloatVec edge = hn::Set(d, -1.0f);
  // A zero keeps its sign, and what is below the smallest normal number is its own logarithm.
  const auto tiny = hn::Lt(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::min()));
  FloatVec y = hn::IfThenElse(tiny, x, hn::Log1p(d, x));
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, edge), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, edge), hn::NaN(d), y);
  return KeepNaN(x, y);
}

// Beyond 10 tanh is 1 in f32.
HWY_INLINE FloatVec TanhOf(FloatTag d, FloatVec x) {
  const FloatVec limit = hn::Set(d, 10.0f);
  return KeepNaN(x, hn::Tanh(d, hn::Max(hn::Min(x, limit), hn::Neg(limit))));
}

// Far below 0 the exponential is infinite and the sigmoid 0.
HWY_INLINE FloatVec SigmoidOf(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, ExpOf(d, hn::Neg(x))));
}

// 1 - (a polynomial of t = 1 / (1 + p|x|)) exp(-x^2), off by 1.5e-7 at most; near 0, where that is
// not little, its series. Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26
// and 7.1.5.
HWY_INLINE FloatVec ErfOf(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec far = hn::Min(hn::Abs(x), hn::Set(d, 6.0f));
  const FloatVec square = hn::Mul(far, far);
  const FloatVec t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911f), far, one));
  FloatVec y = hn::MulAdd(hn::Set(d, 1.061405429f), t, hn::Set(d, -1.453152027f));
  y = hn::MulAdd(y, t, hn::Set(d, 1.421413741f));
  y = hn::MulAdd(y, t, hn::Set(d, -0.284496736f));
  y = hn::Mul(hn::MulAdd(y, t, hn::Set(d, 0.254829592f)), t);
  y = hn::NegMulAdd(y, ExpOf(d, hn::Neg(square)), one);
  FloatVec series = hn::MulAdd(hn::Set(d, 0.005223977625f), square, hn::Set(d, -0.026866170645f));
  series = hn::MulAdd(series, square, hn::Set(d, 0.112837916710f));
  series = hn::MulAdd(series, square, hn::Set(d, -0.376126389032f));
  series = hn::Mul(hn::MulAdd(series, square, hn::Set(d, 1.128379167096f)), far);
  y = hn::IfThenElse(hn::Lt(far, hn::Set(d, 0.4f)), series, y);
  return KeepNaN(x, hn::CopySign(y, x));
}

HWY_INLINE FloatVec LargerOf(FloatVec x, FloatVec y) {
  return KeepNaN(x, hn::IfThenElse(hn::Gt(x, y), x, y));
}
HWY_INLINE FloatVec SmallerOf(FloatVec x, FloatVec y) {
  return KeepNaN(x, hn::IfThenElse(hn::Lt(x, y), x, y));
}

HWY_INLINE FloatVec SignOf(FloatTag d, FloatVec x) {
  const FloatVec sign = hn::CopySign(hn::Set(d, 1.0f), x);
  return KeepNaN(x, hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), sign));
}

void Two(ir::Op op, const float* x, const float* y, float* out, int64_t count) {
  switch (op) {
    case ir::Op::kDivide:
      return MapTwo(x, y, out, count,
                    [](FloatTag, FloatVec a, FloatVec b) { return hn::Div(a, b); });
    case ir::Op::kMaximum:
      return MapTwo(x, y, out, count,
                    [](FloatTag, FloatVec a, FloatVec b) { return LargerOf(a, b); });
    case ir::Op::kMinimum:
      return MapTwo(x, y, out, count,
                    [](FloatTag, FloatVec a, FloatVec b) { return SmallerOf(a, b); });
    default:  // gate
      return MapTwo(x, y, out, count, [](FloatTag d, FloatVec a, FloatVec b) {
        return hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), b);
      });
  }
}

void One(ir::Op op, const float* x, float value, float* out, int64_t count) {
  switch (op) {
    case ir::Op::kShift:
      return MapOne(x, out, count,
                    [&](FloatTag d, FloatVec a) { return hn::Add(a, hn::Set(d, value)); });
    case ir::Op::kAbs:
      return MapOne(x, out, count, [](FloatTag, FloatVec a) { return hn::Abs(a); });
    case ir::Op::kSign:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return SignOf(d, a); });
    case ir::Op::kRelu:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return LargerOf(a, hn::Zero(d)); });
    case ir::Op::kExp:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return ExpOf(d, a); });
    case ir::Op::kLog:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return LogOf(d, a); });
    case ir::Op::kLog1p:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return Log1pOf(d, a); });
    case ir::Op::kSqrt:
      return MapOne(x, out, count, [](FloatTag, FloatVec a) { return hn::Sqrt(a); });
    case ir::Op::kRsqrt:
      return MapOne(x, out, count,
                    [](FloatTag d, FloatVec a) { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(a)); });
    case ir::Op::kTanh:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return TanhOf(d, a); });
    case ir::Op::kSigmoid:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return SigmoidOf(d, a); });
    default:
      return MapOne(x, out, count, [](FloatTag d, FloatVec a) { return ErfOf(d, a); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(One);
HWY_EXPORT(Two);

void VecNative(ir::Op op, const float* x, const float* y, float value, float* out, int64_t count) {
  switch (op) {
    case ir::Op::kAdd:
      return VecAdd(x, y, out, count);
    case ir::Op::kSub:
      return VecSub(x, y, out, count);
    case ir::Op::kMul:
      return VecMul(x, y, out, count);
    case ir::Op::kScale:
      return VecScale(x, value, out, count);
    case ir::Op::kGelu:
      return VecGelu(x, out, count);
    case ir::Op::kGeluGrad:
      return VecGeluGrad(x, y, out, count);
    case ir::Op::kSilu:
      return VecSilu(x, out, count);
    case ir::Op::kSiluGrad:
      return VecSiluGrad(x, y, out, count);
    case ir::Op::kPow:  // rare: the library's, one by one
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(std::pow(static_cast<double>(x[i]), static_cast<double>(y[i])));
      }
      return;
    case ir::Op::kDivide:
    case ir::Op::kMaximum:
    case ir::Op::kMinimum:
    case ir::Op::kGate:
      return HWY_DYNAMIC_DISPATCH(Two)(op, x, y, out, count);
    case ir::Op::kShift:
    case ir::Op::kAbs:
    case ir::Op::kSign:
    case ir::Op::kRelu:
    case ir::Op::kExp:
    case ir::Op::kLog:
    case ir::Op::kLog1p:
    case ir::Op::kSqrt:
    case ir::Op::kRsqrt:
    case ir::Op::kTanh:
    case ir::Op::kSigmoid:
    case ir::Op::kErf:
      return HWY_DYNAMIC_DISPATCH(One)(op, x, value, out, count);
    default:
      MW_CHECK(false) << ir::OpName(op) << " is no native op of floats";
  }
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
