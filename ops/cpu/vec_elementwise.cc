#include "ops/cpu/vec_elementwise.h"

#include <algorithm>

#include "base/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_elementwise.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "hwy/contrib/math/math-inl.h"
#include "ops/cpu/vec_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

template <typename F>
HWY_INLINE void Map(const float* x, float* out, int64_t count, const F& f) {
  const FloatTag d;
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    StoreLanes(f(d, LoadLanes(d, x + i, lanes)), d, out + i, lanes);
  });
}

template <typename F>
HWY_INLINE void Map(const float* x, const float* y, float* out, int64_t count, const F& f) {
  const FloatTag d;
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    StoreLanes(f(d, LoadLanes(d, x + i, lanes), LoadLanes(d, y + i, lanes)), d, out + i, lanes);
  });
}

void Add(const float* x, const float* y, float* out, int64_t count) {
  Map(x, y, out, count, [](FloatTag, FloatVec a, FloatVec b) { return hn::Add(a, b); });
}

void Mul(const float* x, const float* y, float* out, int64_t count) {
  Map(x, y, out, count, [](FloatTag, FloatVec a, FloatVec b) { return hn::Mul(a, b); });
}

void Sub(const float* x, const float* y, float* out, int64_t count) {
  Map(x, y, out, count, [](FloatTag, FloatVec a, FloatVec b) { return hn::Sub(a, b); });
}

void Scale(const float* x, float factor, float* out, int64_t count) {
  Map(x, out, count, [factor](FloatTag d, FloatVec a) { return hn::Mul(a, hn::Set(d, factor)); });
}

// 1 / x for x in [1, 2^127].
HWY_INLINE FloatVec Reciprocal(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // 14 bits, and one step of Newton for the rest: fewer cycles than a division.
  const FloatVec guess = hn::ApproximateReciprocal(x);
  return hn::MulAdd(guess, hn::NegMulAdd(x, guess, one), guess);
#else
  return hn::Div(one, x);
#endif
}

// 1 / (1 + exp(-z)); the clamp keeps exp in range, where the result is 0 or 1 anyway. Of NaN it is
// some number: callers multiply by z.
HWY_INLINE FloatVec Sigmoid(FloatTag d, FloatVec z) {
  const FloatVec power = hn::Mul(z, hn::Set(d, -kLog2OfE));
  const FloatVec limited = hn::Min(hn::Max(power, hn::Set(d, -126.0f)), hn::Set(d, 126.0f));
  return Reciprocal(d, hn::Add(hn::Set(d, 1.0f), Exp2Within(d, limited)));
}

// gelu(x) = x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh u) / 2 =
// sigmoid(2u).
constexpr float kTwiceScale = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

HWY_INLINE FloatVec GeluGate(FloatTag d, FloatVec x) {
  const FloatVec square = hn::Mul(x, x);
  const FloatVec inner = hn::MulAdd(square, hn::Set(d, kCubic), hn::Set(d, 1.0f));
  return Sigmoid(d, hn::Mul(hn::Mul(x, hn::Set(d, kTwiceScale)), inner));
}

void Gelu(const float* x, float* out, int64_t count) {
  Map(x, out, count, [](FloatTag d, FloatVec v) { return hn::Mul(v, GeluGate(d, v)); });
}

void GeluGrad(const float* x, const float* dy, float* out, int64_t count) {
  Map(x, dy, out, count, [](FloatTag d, FloatVec v, FloatVec grad) {
    const FloatVec one = hn::Set(d, 1.0f);
    const FloatVec gate = GeluGate(d, v);
    const FloatVec inner = hn::MulAdd(hn::Mul(v, v), hn::Set(d, 3 * kCubic), one);
    const FloatVec slope = hn::Mul(hn::Mul(v, hn::Set(d, kTwiceScale)), inner);
    // gate + gate (1 - gate) * x * d(2u)/dx.
    return hn::Mul(grad, hn::MulAdd(hn::Mul(gate, hn::Sub(one, gate)), slope, gate));
  });
}

void Silu(const float* x, float* out, int64_t count) {
  Map(x, out, count, [](FloatTag d, FloatVec v) { return hn::Mul(v, Sigmoid(d, v)); });
}

void SiluGrad(const float* x, const float* dy, float* out, int64_t count) {
  Map(x, dy, out, count, [](FloatTag d, FloatVec v, FloatVec grad) {
    const FloatVec gate = Sigmoid(d, v);
    const FloatVec rest = hn::Mul(gate, hn::Sub(hn::Set(d, 1.0f), gate));
    return hn::Mul(grad, hn::MulAdd(v, rest, gate));
  });
}

void Mask(const float* x, const uint32_t* bits, uint32_t threshold, float scale, float* out,
          int64_t count) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto limit = hn::BitCast(hn::RebindToSigned<FloatTag>(), hn::Set(du, threshold));
  ForLanes(d, count, [&](int64_t i, size_t lanes) {
    // Lanes are moved as raw words through the float loader.
    const FloatVec raw = LoadLanes(d, reinterpret_cast<const float*>(bits + i), lanes);
    const auto value =
        hn::ShiftRight<8>(hn::BitCast(du, raw));  // 24 bits: safe to compare as signed
    const auto drop = hn::BitCast(hn::RebindToSigned<FloatTag>(), value) < limit;
    const FloatVec kept = hn::Mul(LoadLanes(d, x + i, lanes), hn::Set(d, scale));
    StoreLanes(hn::IfThenZeroElse(hn::RebindMask(d, drop), kept), d, out + i, lanes);
  });
}

#if HWY_TARGET == HWY_SCALAR

void PhiloxFill(uint64_t key, uint64_t step, uint64_t first, uint32_t* bits, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t at = first + static_cast<uint64_t>(i);
    bits[i] = Philox(key, at >> 2, step)[at & 3];
  }
}

void PhiloxPairs(uint64_t key, uint64_t step, uint64_t first, int32_t* x, int32_t* y,
                 int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t at = first + static_cast<uint64_t>(i);
    const PhiloxBlock words = Philox(key, at >> 1, step);
    x[i] = static_cast<int32_t>(words[2 * (at & 1)]);
    y[i] = static_cast<int32_t>(words[2 * (at & 1) + 1]);
  }
}

#else

// One Philox block per 64-bit lane: counter words sit in the low halves. Returns the four words of
// each lane's block.
struct PhiloxWords {
  hn::Vec<hn::ScalableTag<uint64_t> > word[4];
};

HWY_INLINE PhiloxWords PhiloxLanes(uint64_t key, uint64_t step,
                                   hn::Vec<hn::ScalableTag<uint64_t> > block) {
  const hn::ScalableTag<uint64_t> d;
  const hn::Repartition<uint32_t, decltype(d)> dw;
  const auto low = hn::Set(d, 0xFFFFFFFFull);
  auto c0 = hn::And(block, low);
  auto c1 = hn::ShiftRight<32>(block);
  auto c2 = hn::Set(d, step & 0xFFFFFFFFull);
  auto c3 = hn::Set(d, step >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  const auto m0 = hn::BitCast(dw, hn::Set(d, uint64_t{0xD2511F53u}));
  const auto m1 = hn::BitCast(dw, hn::Set(d, uint64_t{0xCD9E8D57u}));
  for (int round = 0; round < 10; ++round) {
    const auto p0 = hn::MulEven(hn::BitCast(dw, c0), m0);
    const auto p1 = hn::MulEven(hn::BitCast(dw, c2), m1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, uint64_t{k0}));
    c1 = hn::And(p1, low);
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, uint64_t{k1}));
    c3 = hn::And(p0, low);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

void PhiloxFill(uint64_t key, uint64_t step, uint64_t first, uint32_t* bits, int64_t count) {
  const hn::ScalableTag<uint64_t> d;
  const size_t blocks = hn::Lanes(d);
  HWY_ALIGN uint64_t lanes[4][hn::MaxLanes(d)];
  int64_t done = 0;
  while (done < count) {
    const uint64_t at = first + static_cast<uint64_t>(done);
    const PhiloxWords words = PhiloxLanes(key, step, hn::Iota(d, at >> 2));
    for (int w = 0; w < 4; ++w) hn::Store(words.word[w], d, lanes[w]);
    const size_t skip = static_cast<size_t>(at & 3);
    const size_t take = std::min<size_t>(4 * blocks - skip, static_cast<size_t>(count - done));
    for (size_t i = 0; i < take; ++i) {
      bits[static_cast<size_t>(done) + i] =
          static_cast<uint32_t>(lanes[(skip + i) & 3][(skip + i) >> 2]);
    }
    done += static_cast<int64_t>(take);
  }
}

// Pairs first, first + 1, ... of words: pair q is words 2(q%2) and 2(q%2)+1 of block q/2.
void PhiloxPairs(uint64_t key, uint64_t step, uint64_t first, int32_t* x, int32_t* y,
                 int64_t count) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t blocks = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN uint64_t lanes[4][hn::MaxLanes(d)];
  for (int64_t done = 0; done < count;) {
    const uint64_t at = first + static_cast<uint64_t>(done);
    const PhiloxWords words = PhiloxLanes(key, step, hn::Iota(d, at >> 1));
    for (int w = 0; w < 4; ++w) hn::Store(words.word[w], d, lanes[w]);
    const int64_t skip = static_cast<int64_t>(at & 1);
    const int64_t take = std::min(2 * blocks - skip, count - done);
    for (int64_t i = 0; i < take; ++i) {
      const int64_t pair = skip + i;
      x[done + i] = static_cast<int32_t>(lanes[2 * (pair & 1)][pair >> 1]);
      y[done + i] = static_cast<int32_t>(lanes[2 * (pair & 1) + 1][pair >> 1]);
    }
    done += take;
  }
}

#endif  // HWY_SCALAR

// log(u) of u = (bits + 1) / 2^32. Above one half by the distance to one, which a float says
// better.
HWY_INLINE FloatVec LogOfUniform(FloatTag d, FloatVec raw) {
  const hn::RebindToSigned<FloatTag> di;
  const auto bits = hn::BitCast(di, raw);
  const auto upper = hn::Lt(bits, hn::Zero(di));
  const FloatVec near = hn::ConvertTo(d, hn::IfThenElse(upper, hn::Not(bits), bits));
  const FloatVec unit = hn::Set(d, 0x1.0p-32f);
  const FloatVec low = hn::Log(d, hn::Mul(hn::Add(near, hn::Set(d, 1.0f)), unit));
  const FloatVec high = hn::Log1p(d, hn::Neg(hn::Mul(near, unit)));
  return hn::IfThenElse(hn::RebindMask(d, upper), high, low);
}

// 2 pi bits / 2^32: the bits as a signed number are the same angle.
HWY_INLINE FloatVec AngleOfTurn(FloatTag d, FloatVec raw) {
  const hn::RebindToSigned<FloatTag> di;
  constexpr float kTurn = 6.283185307179586f * 0x1.0p-32f;
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(di, raw)), hn::Set(d, kTurn));
}

void Normal(uint64_t key, uint64_t step, uint64_t first, float mean, float deviation, float* out,
            int64_t count) {
  constexpr int64_t kPairs = 64;
  const FloatTag d;
  int32_t x[kPairs];
  int32_t y[kPairs];
  float values[2 * kPairs + 2 * hn::MaxLanes(d)];
  const uint64_t end = first + static_cast<uint64_t>(count);
  for (uint64_t pair = first >> 1; 2 * pair < end; pair += kPairs) {
    const int64_t pairs = static_cast<int64_t>(std::min<uint64_t>(kPairs, ((end + 1) >> 1) - pair));
    PhiloxPairs(key, step, pair, x, y, pairs);
    ForLanes(d, pairs, [&](int64_t i, size_t lanes) {
      const FloatVec log = LogOfUniform(d, LoadLanes(d, reinterpret_cast<float*>(x + i), lanes));
      const FloatVec angle = AngleOfTurn(d, LoadLanes(d, reinterpret_cast<float*>(y + i), lanes));
      const FloatVec radius =
          hn::Mul(hn::Sqrt(hn::Mul(log, hn::Set(d, -2.0f))), hn::Set(d, deviation));
      const FloatVec middle = hn::Set(d, mean);
      hn::StoreInterleaved2(hn::MulAdd(radius, hn::Cos(d, angle), middle),
                            hn::MulAdd(radius, hn::Sin(d, angle), middle), d, values + 2 * i);
    });
    const uint64_t from = std::max(first, 2 * pair);
    const uint64_t to = std::min(end, 2 * (pair + static_cast<uint64_t>(pairs)));
    std::copy(values + (from - 2 * pair), values + (to - 2 * pair), out + (from - first));
  }
}

void Rotate(const float* x, const float* cosine, const float* sine, float* out, int64_t half) {
  const FloatTag d;
  ForLanes(d, half, [&](int64_t i, size_t lanes) {
    const FloatVec c = LoadLanes(d, cosine + i, lanes);
    const FloatVec s = LoadLanes(d, sine + i, lanes);
    const FloatVec low = LoadLanes(d, x + i, lanes);
    const FloatVec high = LoadLanes(d, x + half + i, lanes);
    StoreLanes(hn::NegMulAdd(high, s, hn::Mul(low, c)), d, out + i, lanes);
    StoreLanes(hn::MulAdd(low, s, hn::Mul(high, c)), d, out + half + i, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(Add);
HWY_EXPORT(Mul);
HWY_EXPORT(Sub);
HWY_EXPORT(Scale);
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluGrad);
HWY_EXPORT(Silu);
HWY_EXPORT(SiluGrad);
HWY_EXPORT(Mask);
HWY_EXPORT(PhiloxFill);
HWY_EXPORT(Normal);
HWY_EXPORT(Rotate);

void VecAdd(const float* x, const float* y, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Add)(x, y, out, count);
}

void VecMul(const float* x, const float* y, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Mul)(x, y, out, count);
}

void VecSub(const float* x, const float* y, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Sub)(x, y, out, count);
}

void VecScale(const float* x, float factor, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Scale)(x, factor, out, count);
}

void VecGelu(const float* x, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Gelu)(x, out, count);
}

void VecGeluGrad(const float* x, const float* dy, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(GeluGrad)(x, dy, out, count);
}

void VecSilu(const float* x, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Silu)(x, out, count);
}

void VecSiluGrad(const float* x, const float* dy, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(SiluGrad)(x, dy, out, count);
}

void VecMask(const float* x, const uint32_t* bits, uint32_t threshold, float scale, float* out,
             int64_t count) {
  HWY_DYNAMIC_DISPATCH(Mask)(x, bits, threshold, scale, out, count);
}

void VecPhilox(uint64_t key, uint64_t step, uint64_t first, uint32_t* bits, int64_t count) {
  HWY_DYNAMIC_DISPATCH(PhiloxFill)(key, step, first, bits, count);
}

void VecNormal(uint64_t key, uint64_t step, uint64_t first, float mean, float deviation, float* out,
               int64_t count) {
  HWY_DYNAMIC_DISPATCH(Normal)(key, step, first, mean, deviation, out, count);
}

void VecRotate(const float* x, const float* cosine, const float* sine, float* out, int64_t half) {
  HWY_DYNAMIC_DISPATCH(Rotate)(x, cosine, sine, out, half);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
