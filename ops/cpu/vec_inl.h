// Loops over vectors with a tail, for the files that are compiled once per instruction set.
//
// Idea: body(first, lanes) runs for every full vector and once for the rest; loads and stores of
// fewer lanes go through a small buffer, so that memory beyond the range is never touched and a
// tail element sees the same instructions as any other. Thread rule: pure functions. The guard
// below toggles instead of `#pragma once`: each instruction set needs its own copy.
#if defined(MESHWRIGHT_OPS_CPU_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHWRIGHT_OPS_CPU_VEC_INL_H_
#undef MESHWRIGHT_OPS_CPU_VEC_INL_H_
#else
#define MESHWRIGHT_OPS_CPU_VEC_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// The first `count` lanes from memory, the rest `pad`. Never reads beyond count.
HWY_INLINE FloatVec LoadLanes(FloatTag d, const float* from, size_t count, float pad = 0) {
  if (HWY_LIKELY(count == hn::Lanes(d))) return hn::LoadU(d, from);
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(hn::Set(d, pad), d, lanes);
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void StoreLanes(FloatVec v, FloatTag d, float* to, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) {
    hn::StoreU(v, d, to);
    return;
  }
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(float));
}

// Zero in the lanes at and after `count`.
HWY_INLINE FloatVec KeepLanes(FloatTag d, FloatVec v, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) return v;
  return hn::IfThenElseZero(hn::FirstN(d, count), v);
}

// body(first, lanes) for [0, count) in steps of a full vector, then once for the rest.
template <typename Body>
HWY_INLINE void ForLanes(FloatTag d, int64_t count, const Body& body) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= count; i += step) body(i, hn::Lanes(d));
  if (i < count) body(i, static_cast<size_t>(count - i));
}

constexpr float kLog2OfE = 1.44269504088896340736f;

// 2^x for x in [-126, 128]: 2^(whole part) goes to the exponent, 2^f of the rest, |f| <= 0.5, is
// 1 + f * (a polynomial with a relative error of 1.1e-7).
HWY_INLINE FloatVec Exp2Within(FloatTag d, FloatVec x) {
  const hn::RebindToSigned<FloatTag> di;
  const FloatVec whole = hn::Round(x);
  const FloatVec f = hn::Sub(x, whole);
  FloatVec y = hn::MulAdd(hn::Set(d, 1.32647296413779e-3f), f, hn::Set(d, 9.67151485383511e-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 5.55073358118534e-2f));
  y = hn::MulAdd(y, f, hn::Set(d, 2.40222424268723e-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 6.93147003650665e-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, y), exponent));
}

// 2^x: below the smallest normal number 0, from 128 on infinite, of NaN NaN.
HWY_INLINE FloatVec Exp2(FloatTag d, FloatVec x) {
  const FloatVec limited = hn::IfThenElse(hn::Gt(x, hn::Set(d, 128.0f)), hn::Set(d, 128.0f), x);
  const FloatVec finite =
      hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), Exp2Within(d, limited));
  return hn::IfThenElse(hn::IsNaN(x), x, finite);
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // MESHWRIGHT_OPS_CPU_VEC_INL_H_
