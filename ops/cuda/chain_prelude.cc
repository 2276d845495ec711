#include "ops/cuda/chain_prelude.h"

namespace meshwright::ops::cuda {

// sigmoid(2u) is (1 + tanh(u)) / 2 without the loss of digits. Beyond 16 a gate is 0 or 1 in f32,
// and its argument would overflow.
//
// Gates limit the speed of chains of 16-bit elements: on a GPU they take the hardware's power of
// two and reciprocal, which are off by 2^-22 at most and give 0 for what is too small to be normal.
// The text for the host has the same formulas.
const char* const kChainPrelude = R"cuda(
typedef unsigned u32;
typedef unsigned long long u64;
#if WIDE_INDEX
typedef u64 Index;
#else
typedef u32 Index;
#endif

struct Bf16 { unsigned short bits; };
struct F16 { unsigned short bits; };
struct Bool { unsigned char byte; };
struct alignas(16) Bytes16 { u32 words[4]; };
struct StepState { u64 seed; long long step; };

__device__ inline u32 BitsOf(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
__device__ inline float FloatOf(u32 bits) { float x; memcpy(&x, &bits, 4); return x; }

__device__ inline float Widen(float x) { return x; }
__device__ inline float Widen(Bf16 x) { return FloatOf((u32)x.bits << 16); }
__device__ inline float Widen(F16 x) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  const u32 sign = (u32)(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return FloatOf(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude < 0x0400u) return FloatOf(sign | BitsOf((float)magnitude * 0x1p-24f));
  return FloatOf(sign | ((magnitude << 13) + (112u << 23)));
#endif
}

__device__ inline double Widen(int x) { return x; }
__device__ inline float Widen(Bool x) { return x.byte; }

__device__ inline void Narrow(float x, float& to) { to = x; }
__device__ inline void Narrow(double x, int& to) {
  to = x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? (int)0x80000000u : (int)x;
}
__device__ inline void Narrow(double x, Bool& to) { to.byte = x != 0; }
__device__ inline void Narrow(float x, Bf16& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const u32 bits = BitsOf(x);
  to.bits = (bits & 0x7fffffffu) > 0x7f800000u
                ? (unsigned short)(bits >> 16 | 0x40u)
                : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}
__device__ inline void Narrow(float x, F16& to) {
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const u32 bits = BitsOf(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    to.bits = (unsigned short)(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {
    to.bits = (unsigned short)(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {
    to.bits = (unsigned short)(sign | (BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u));
  } else {
    to.bits = (unsigned short)(
        sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13);
  }
#endif
}
template <typename T>
__device__ inline REAL Round(REAL x) {
  T narrow;
  Narrow(x, narrow);
  return Widen(narrow);
}

template <typename T>
struct alignas(sizeof(T) * kLanes < 16 ? sizeof(T) * kLanes : 16) Lanes {
  T lane[kLanes];
};

// `place` is a multiple of kLanes elements behind an aligned address.
template <typename T>
__device__ inline void Load(const T* place, REAL (&x)[kLanes]) {
  Lanes<T> lanes;
#if kLanes == 1
  lanes.lane[0] = *place;
#else
  Bytes16 parts[sizeof(lanes) / 16 ? sizeof(lanes) / 16 : 1];
  if (sizeof(lanes) % 16 == 0) {
#pragma unroll
    for (int p = 0; p < (int)(sizeof(lanes) / 16); ++p) parts[p] = ((const Bytes16*)place)[p];
    memcpy(&lanes, parts, sizeof(lanes));
  } else {
    lanes = *(const Lanes<T>*)place;
  }
#endif
#pragma unroll
  for (int j = 0; j < kLanes; ++j) x[j] = Widen(lanes.lane[j]);
}
template <typename T>
__device__ inline void Store(T* place, const REAL (&x)[kLanes]) {
  Lanes<T> lanes;
#pragma unroll
  for (int j = 0; j < kLanes; ++j) Narrow(x[j], lanes.lane[j]);
#if kLanes == 1
  *place = lanes.lane[0];
#else
  Bytes16 parts[sizeof(lanes) / 16 ? sizeof(lanes) / 16 : 1];
  if (sizeof(lanes) % 16 == 0) {
    memcpy(parts, &lanes, sizeof(lanes));
#pragma unroll
    for (int p = 0; p < (int)(sizeof(lanes) / 16); ++p) ((Bytes16*)place)[p] = parts[p];
  } else {
    *(Lanes<T>*)place = lanes;
  }
#endif
}

__device__ inline float PowerOfTwo(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return __builtin_exp2f(x);
#endif
}
__device__ inline float Reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}
// x * y + z, rounded once.
__device__ inline float Fused(float x, float y, float z) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(x, y, z);
#else
  return __builtin_fmaf(x, y, z);
#endif
}
// A NaN stays one.
__device__ inline float Clamp(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float clamped;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(x), "f"(-16.0f));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(clamped), "f"(16.0f));
  return clamped;
#else
  return x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
#endif
}

// exp(-x) is 2 to the power of -x / ln(2).
__device__ inline float Sigmoid(float x) {
  return Reciprocal(1.0f + PowerOfTwo(-1.4426950409f * x));
}
// sigmoid(1.5957691216 * (x + 0.044715 * x^3)), the factors joined with that of the power.
__device__ inline float GeluGate(float x) {
  const float factor = Fused(x * x, -0.1029432407f, -2.3022081985f);
  return Reciprocal(1.0f + PowerOfTwo(x * factor));
}
__device__ inline float Gelu(float x) { return x * GeluGate(Clamp(x)); }
__device__ inline float GeluGrad(float x, float dy) {
  const float y = Clamp(x);
  const float gate = GeluGate(y);
  const float slope = Fused(y * y, 0.2140644488f, 1.5957691216f);
  return gate * Fused(y * slope, 1.0f - gate, 1.0f) * dy;
}
__device__ inline float Silu(float x) { return x * Sigmoid(x); }
__device__ inline float SiluGrad(float x, float dy) {
  const float gate = Sigmoid(x);
  return gate * Fused(x, 1.0f - gate, 1.0f) * dy;
}

#if defined(__CUDA_ARCH__)
#define MATH(name) name
#else
#define MATH(name) __builtin_##name
#endif
__device__ inline REAL Maximum(REAL x, REAL y) { return x > y || x != x ? x : y; }
__device__ inline REAL Minimum(REAL x, REAL y) { return x < y || x != x ? x : y; }
__device__ inline REAL Gate(REAL x, REAL y) { return x > 0 ? y : 0; }
__device__ inline REAL Equal(REAL x, REAL y) { return x == y ? 1 : 0; }
__device__ inline REAL Less(REAL x, REAL y) { return x < y ? 1 : 0; }
__device__ inline REAL LessEqual(REAL x, REAL y) { return x <= y ? 1 : 0; }
__device__ inline REAL Select(REAL c, REAL x, REAL y) { return c != 0 ? x : y; }
__device__ inline REAL Abs(REAL x) { return MATH(fabs)(x); }
__device__ inline REAL Sign(REAL x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }
__device__ inline REAL Relu(REAL x) { return x > 0 || x != x ? x : 0; }
__device__ inline float Pow(float x, float y) { return MATH(powf)(x, y); }
__device__ inline float Exp(float x) { return MATH(expf)(x); }
__device__ inline float Log(float x) { return MATH(logf)(x); }
__device__ inline float Log1p(float x) { return MATH(log1pf)(x); }
__device__ inline float Sqrt(float x) { return MATH(sqrtf)(x); }
__device__ inline float Rsqrt(float x) { return 1.0f / MATH(sqrtf)(x); }
__device__ inline float Tanh(float x) { return MATH(tanhf)(x); }
__device__ inline float Erf(float x) { return MATH(erff)(x); }

struct Random { u32 words[4]; };
// Philox4x32-10 of Salmon et al., SC'11; as base/philox.h.
__device__ inline Random Philox(u64 key, u64 low, u64 high) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  u32 c0 = (u32)low, c1 = (u32)(low >> 32), c2 = (u32)high, c3 = (u32)(high >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c1 = (u32)p1;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Random random = {{c0, c1, c2, c3}};
  return random;
}
// Of one element of a dropout.
__device__ inline u32 RandomWord(u64 key, u64 step, u64 index) {
  const Random random = Philox(key, index >> 2, step);
  const u32 low = index & 1 ? random.words[1] : random.words[0];
  const u32 high = index & 1 ? random.words[3] : random.words[2];
  return index & 2 ? high : low;
}
__device__ inline float Drop(float x, u32 bits, u64 threshold, double scale) {
  return bits >> 8 >= (u32)threshold ? x * (float)scale : 0.0f;
}
)cuda";

}  // namespace meshwright::ops::cuda
