#include "ops/cpu/vec_rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_rows.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE float SumLanes(FloatTag d, FloatVec v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

float Max(const float* x, int64_t count) {
  const FloatTag d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  FloatVec best = hn::Set(d, kLowest);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    best = hn::Max(best, LoadLanes(d, x + i, lanes, kLowest));
  });
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

float Sum(const float* x, int64_t count) {
  const FloatTag d;
  FloatVec total = hn::Zero(d);
  ForLanes(d, count,
           [&](int64_t i, size_t lanes) { total = hn::Add(total, LoadLanes(d, x + i, lanes)); });
  return SumLanes(d, total);
}

float Dot(const float* x, const float* y, int64_t count) {
  const FloatTag d;
  FloatVec total = hn::Zero(d);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    total = hn::MulAdd(LoadLanes(d, x + i, lanes), LoadLanes(d, y + i, lanes), total);
  });
  return SumLanes(d, total);
}

// exp(x - shift). NaN is passed on: a diverged model must not be hidden.
HWY_INLINE FloatVec ExpShifted(FloatTag d, FloatVec x, float shift) {
  return Exp2(d, hn::Mul(hn::Sub(x, hn::Set(d, shift)), hn::Set(d, kLog2OfE)));
}

float ExpSum(const float* x, float shift, float* out, int64_t count) {
  const FloatTag d;
  FloatVec total = hn::Zero(d);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec value = ExpShifted(d, LoadLanes(d, x + i, lanes), shift);
    if (out != nullptr) StoreLanes(value, d, out + i, lanes);
    total = hn::Add(total, KeepLanes(d, value, lanes));
  });
  return SumLanes(d, total);
}

void ExpScaled(const float* x, float shift, float factor, float* out, int64_t count) {
  const FloatTag d;
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec value = ExpShifted(d, LoadLanes(d, x + i, lanes), shift);
    StoreLanes(hn::Mul(value, hn::Set(d, factor)), d, out + i, lanes);
  });
}

NormRow Norm(const float* x, const float* w, const float* b, float eps, float* y, int64_t count) {
  const FloatTag d;
  const float width = static_cast<float>(count);
  NormRow row;
  if (b != nullptr) row.mean = Sum(x, count) / width;
  const FloatVec mean = hn::Set(d, row.mean);
  FloatVec square = hn::Zero(d);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec delta = KeepLanes(d, hn::Sub(LoadLanes(d, x + i, lanes), mean), lanes);
    square = hn::MulAdd(delta, delta, square);
  });
  row.rstd = 1.0f / std::sqrt(SumLanes(d, square) / width + eps);
  const FloatVec rstd = hn::Set(d, row.rstd);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec hat = hn::Mul(hn::Sub(LoadLanes(d, x + i, lanes), mean), rstd);
    const FloatVec scaled = hn::Mul(hat, LoadLanes(d, w + i, lanes));
    const FloatVec shift = b != nullptr ? LoadLanes(d, b + i, lanes) : hn::Zero(d);
    StoreLanes(hn::Add(scaled, shift), d, y + i, lanes);
  });
  return row;
}

void NormGrad(const NormGradRow& row, float* dx, float* dw, float* db, int64_t count) {
  const FloatTag d;
  const FloatVec mean = hn::Set(d, row.mean);
  const FloatVec rstd = hn::Set(d, row.rstd);
  FloatVec sum = hn::Zero(d);
  FloatVec sum_hat = hn::Zero(d);
  // Lanes past the end load dy = 0 and so add nothing.
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec hat = hn::Mul(hn::Sub(LoadLanes(d, row.x + i, lanes), mean), rstd);
    const FloatVec dy = LoadLanes(d, row.dy + i, lanes);
    const FloatVec g = hn::Mul(dy, LoadLanes(d, row.w + i, lanes));
    sum = hn::Add(sum, g);
    sum_hat = hn::MulAdd(g, hat, sum_hat);
    StoreLanes(hn::MulAdd(dy, hat, LoadLanes(d, dw + i, lanes)), d, dw + i, lanes);
    if (row.has_mean) StoreLanes(hn::Add(dy, LoadLanes(d, db + i, lanes)), d, db + i, lanes);
  });
  const float width = static_cast<float>(count);
  const FloatVec average = hn::Set(d, row.has_mean ? SumLanes(d, sum) / width : 0.0f);
  const FloatVec average_hat = hn::Set(d, SumLanes(d, sum_hat) / width);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec hat = hn::Mul(hn::Sub(LoadLanes(d, row.x + i, lanes), mean), rstd);
    const FloatVec g = hn::Mul(LoadLanes(d, row.dy + i, lanes), LoadLanes(d, row.w + i, lanes));
    const FloatVec centred = hn::NegMulAdd(hat, average_hat, hn::Sub(g, average));
    StoreLanes(hn::Mul(centred, rstd), d, dx + i, lanes);
  });
}

void AdamW(const AdamWRow& row, const AdamWStep& step, int64_t count) {
  const FloatTag d;
  const auto set = [&](double value) { return hn::Set(d, static_cast<float>(value)); };
  const FloatVec beta1 = set(step.beta1);
  const FloatVec beta2 = set(step.beta2);
  const FloatVec rest1 = set(1.0 - step.beta1);
  const FloatVec rest2 = set(1.0 - step.beta2);
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec g = hn::Mul(LoadLanes(d, row.g + i, lanes), set(step.multiplier));
    const FloatVec m = hn::MulAdd(beta1, LoadLanes(d, row.m + i, lanes), hn::Mul(rest1, g));
    const FloatVec v =
        hn::MulAdd(beta2, LoadLanes(d, row.v + i, lanes), hn::Mul(rest2, hn::Mul(g, g)));
    const FloatVec root = hn::MulAdd(hn::Sqrt(v), set(step.root_scale), set(step.eps));
    const FloatVec change = hn::Div(hn::Mul(set(step.step_size), m), root);
    const FloatVec p = hn::MulSub(LoadLanes(d, row.p + i, lanes), set(step.keep), change);
    StoreLanes(p, d, row.p_out + i, lanes);
    StoreLanes(m, d, row.m_out + i, lanes);
    StoreLanes(v, d, row.v_out + i, lanes);
  });
}

void Sgd(const SgdRow& row, const SgdStep& step, int64_t count) {
  const FloatTag d;
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec p = LoadLanes(d, row.p + i, lanes);
    const FloatVec decayed = hn::Mul(p, hn::Set(d, step.decay));
    const FloatVec g =
        hn::MulAdd(LoadLanes(d, row.g + i, lanes), hn::Set(d, step.multiplier), decayed);
    const FloatVec m = hn::MulAdd(LoadLanes(d, row.m + i, lanes), hn::Set(d, step.momentum), g);
    StoreLanes(hn::NegMulAdd(m, hn::Set(d, step.lr), p), d, row.p_out + i, lanes);
    StoreLanes(m, d, row.m_out + i, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(Max);
HWY_EXPORT(Sum);
HWY_EXPORT(Dot);
HWY_EXPORT(ExpSum);
HWY_EXPORT(ExpScaled);
HWY_EXPORT(Norm);
HWY_EXPORT(NormGrad);
HWY_EXPORT(AdamW);
HWY_EXPORT(Sgd);

float VecMax(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(Max)(x, count); }

float VecSum(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(Sum)(x, count); }

float VecDot(const float* x, const float* y, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Dot)(x, y, count);
}

float VecExpSum(const float* x, float shift, float* out, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(ExpSum)(x, shift, out, count);
}

void VecExpScaled(const float* x, float shift, float factor, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ExpScaled)(x, shift, factor, out, count);
}

NormRow VecNorm(const float* x, const float* w, const float* b, float eps, float* y,
                int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Norm)(x, w, b, eps, y, count);
}

void VecNormGrad(const NormGradRow& row, float* dx, float* dw, float* db, int64_t count) {
  HWY_DYNAMIC_DISPATCH(NormGrad)(row, dx, dw, db, count);
}

void VecAdamW(const AdamWRow& row, const AdamWStep& step, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AdamW)(row, step, count);
}

void VecSgd(const SgdRow& row, const SgdStep& step, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Sgd)(row, step, count);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
