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

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // MESHWRIGHT_OPS_CPU_VEC_INL_H_
