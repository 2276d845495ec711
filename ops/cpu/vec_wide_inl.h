// Loads of f32 or bf16, as raw 16-bit values, into vectors of f32, for the files that are compiled
// once per instruction set. Thread rule: pure functions. The guard is as in ops/cpu/vec_inl.h.
#if defined(MESHWRIGHT_OPS_CPU_VEC_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHWRIGHT_OPS_CPU_VEC_WIDE_INL_H_
#undef MESHWRIGHT_OPS_CPU_VEC_WIDE_INL_H_
#else
#define MESHWRIGHT_OPS_CPU_VEC_WIDE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

HWY_INLINE FloatVec LoadWide(FloatTag d, const float* from) { return hn::LoadU(d, from); }
HWY_INLINE FloatVec LoadWide(FloatTag d, const uint16_t* from) {
  const hn::Rebind<uint16_t, FloatTag> half;
  const hn::RebindToUnsigned<FloatTag> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, from))));
}

// The first `count` lanes, the others 0. Never reads beyond count.
template <typename T>
HWY_INLINE FloatVec LoadWideLanes(FloatTag d, const T* from, int64_t count) {
  if (HWY_LIKELY(count >= LaneCount())) return LoadWide(d, from);
  T some[hn::MaxLanes(d)] = {};
  std::copy(from, from + count, some);
  return LoadWide(d, some);
}

HWY_INLINE float Wide(float x) { return x; }
HWY_INLINE float Wide(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float wide = 0;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // MESHWRIGHT_OPS_CPU_VEC_WIDE_INL_H_
