#include "ops/cpu/vec_half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_half.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/half_tile.h"
#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

using WordTag = hn::ScalableTag<uint32_t>;
using HalfTag = hn::Rebind<uint16_t, WordTag>;

void Widen(const uint16_t* x, float* out, int64_t count) {
  const FloatTag d;
  const WordTag words;
  const HalfTag halves;
  HWY_ALIGN uint16_t rest[hn::MaxLanes(halves)] = {};
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const uint16_t* from = x + i;
    if (lanes != hn::Lanes(d)) {
      std::memcpy(rest, from, lanes * sizeof(uint16_t));
      from = rest;
    }
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, from)));
    StoreLanes(hn::BitCast(d, bits), d, out + i, lanes);
  });
}

void Narrow(const float* x, uint16_t* out, int64_t count) {
  const FloatTag d;
  const WordTag words;
  const HalfTag halves;
  HWY_ALIGN uint16_t rest[hn::MaxLanes(halves)];
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    const FloatVec value = LoadLanes(d, x + i, lanes);
    const auto bits = hn::BitCast(words, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(words, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu))));
    const auto quiet = hn::Or(high, hn::Set(words, 0x40u));
    const auto result = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), quiet, rounded);
    // All lanes are below 2^16, so that the saturation of the signed conversion does nothing.
    const hn::RebindToSigned<WordTag> integers;
    const auto narrow = hn::DemoteTo(halves, hn::BitCast(integers, result));
    if (lanes == hn::Lanes(d)) {
      hn::StoreU(narrow, halves, out + i);
    } else {
      hn::Store(narrow, halves, rest);
      std::memcpy(out + i, rest, lanes * sizeof(uint16_t));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void VecWiden(const uint16_t* x, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Widen)(x, out, count);
}

void VecNarrow(const float* x, uint16_t* out, int64_t count) {
  if (HasHalfTiles()) return HalfNarrow(x, out, count);
  HWY_DYNAMIC_DISPATCH(Narrow)(x, out, count);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
