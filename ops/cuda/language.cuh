// What the kernels of this folder share: launches, element types, loads of whole units, sums over
// warps and blocks. For .cu files only.
//
// Elements are computed with in f32 whatever they are stored as. A unit is what one thread takes at
// a time: 16 bytes of the widest tensor of a kernel, so that accesses are whole.
//
// The same source is compiled by nvcc for GPUs and, behind tests/emulated/cuda_language.h, by the
// host's compiler for tests.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "ops/cuda/kernel_args.h"

#if defined(__CUDACC__)
// Dynamic shared memory of the block as an array of `type`.
#define MW_DYNAMIC_SHARED(type, name)                          \
  extern __shared__ __align__(16) unsigned char mw_dynamic_[]; \
  type* const name = reinterpret_cast<type*>(mw_dynamic_)
#else
#define MW_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(meshwright::emulated::DynamicShared())
#endif

namespace meshwright::ops::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// ---- Launches -----------------------------------------------------------------------------------

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;
};

inline LaunchShape Blocks(int64_t blocks, int64_t threads) {
  return {dim3{static_cast<unsigned>(blocks), 1, 1}, dim3{static_cast<unsigned>(threads), 1, 1}, 0};
}

// Puts the kernel into the stream. Nothing to do for an empty grid.
template <typename... Params>
Code Launch(StreamHandle stream, const LaunchShape& shape, void (*kernel)(Params...),
            std::type_identity_t<Params>... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return 0;
#if defined(__CUDACC__)
  constexpr int64_t kWithoutAsking = 48 << 10;
  if (shape.shared_bytes > kWithoutAsking) {
    const cudaError_t code = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(shape.shared_bytes));
    if (code != cudaSuccess) {
      (void)cudaGetLastError();
      return static_cast<Code>(code);
    }
  }
  void* places[] = {&args...};
  const cudaError_t code =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, shape.block, places,
                       static_cast<size_t>(shape.shared_bytes), static_cast<cudaStream_t>(stream));
  // Its own code: cudaGetLastError() might tell of an earlier call, and is left clean.
  if (code != cudaSuccess) (void)cudaGetLastError();
  return static_cast<Code>(code);
#else
  return emulated::Launch(stream, shape.grid, shape.block, shape.shared_bytes, kernel, args...);
#endif
}

// Blocks of `threads` for `items`; kernels with a loop over the grid need no more than fill a GPU.
constexpr int64_t kBlocksThatFill = 132 * 16;
inline int64_t BlocksFor(int64_t items, int64_t threads, int64_t most = kBlocksThatFill) {
  const int64_t blocks = (items + threads - 1) / threads;
  return blocks < most ? blocks : most;
}

__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GridThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// ---- Elements -----------------------------------------------------------------------------------

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(Bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
__device__ inline float ToFloat(F16 value) {
#if defined(__CUDACC__)
  float wide = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return F16ToFloat(value.bits);
#endif
}

// Rounds to nearest even.
template <typename T>
__device__ inline T FromFloat(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, Bf16>) {
#if defined(__CUDACC__)
    Bf16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
    return narrow;
#else
    return {FloatToBf16(value)};
#endif
  } else {
#if defined(__CUDACC__)
    F16 narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
    return narrow;
#else
    return {FloatToF16(value)};
#endif
  }
}

// Element i of a tensor of any float type: for scalars and short rows.
__device__ inline float LoadAny(const void* data, FloatType type, int64_t i) {
  if (type == FloatType::kF32) return static_cast<const float*>(data)[i];
  if (type == FloatType::kBF16) return ToFloat(static_cast<const Bf16*>(data)[i]);
  return ToFloat(static_cast<const F16*>(data)[i]);
}
__device__ inline void StoreAny(void* data, FloatType type, int64_t i, float value) {
  if (type == FloatType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else if (type == FloatType::kBF16) {
    static_cast<Bf16*>(data)[i] = FromFloat<Bf16>(value);
  } else {
    static_cast<F16*>(data)[i] = FromFloat<F16>(value);
  }
}

// Calls body(T{}) with the type; nvcc compiles the kernel for each.
template <typename Body>
Code ForType(FloatType type, const Body& body) {
  if (type == FloatType::kF32) return body(float{});
  if (type == FloatType::kBF16) return body(Bf16{});
  return body(F16{});
}

// ---- Units --------------------------------------------------------------------------------------

// Elements of 16 bytes of the widest type.
template <typename... Types>
constexpr int UnitOf() {
  return (... && (sizeof(Types) == 2)) ? 8 : 4;
}

// N elements from a place that is aligned for them. N 1: any place.
template <typename T, int N>
__device__ inline void LoadUnit(const T* place, float (&values)[N]) {
  if constexpr (sizeof(T) == 4 && N == 4) {
    const uint4 raw = *reinterpret_cast<const uint4*>(place);
    values[0] = __uint_as_float(raw.x);
    values[1] = __uint_as_float(raw.y);
    values[2] = __uint_as_float(raw.z);
    values[3] = __uint_as_float(raw.w);
  } else if constexpr (sizeof(T) == 2 && (N == 8 || N == 4)) {
    unsigned raw[N / 2];
    if constexpr (N == 8) {
      const uint4 all = *reinterpret_cast<const uint4*>(place);
      raw[0] = all.x, raw[1] = all.y, raw[2] = all.z, raw[3] = all.w;
    } else {
      const uint2 all = *reinterpret_cast<const uint2*>(place);
      raw[0] = all.x, raw[1] = all.y;
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      values[2 * i] = ToFloat(T{static_cast<uint16_t>(raw[i])});
      values[2 * i + 1] = ToFloat(T{static_cast<uint16_t>(raw[i] >> 16)});
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = ToFloat(place[i]);
  }
}

// One store of the whole: nvcc 13 splits plain ones into words. Of the device's memory only.
template <typename Words>
__device__ inline void StoreWhole(void* place, const Words& words) {
#if defined(__CUDACC__)
  __stwb(static_cast<Words*>(place), words);
#else
  *static_cast<Words*>(place) = words;
#endif
}

template <typename T, int N>
__device__ inline void StoreUnit(T* place, const float (&values)[N]) {
  if constexpr (sizeof(T) == 4 && N == 4) {
    StoreWhole(place, make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]),
                                 __float_as_uint(values[2]), __float_as_uint(values[3])));
  } else if constexpr (sizeof(T) == 2 && (N == 8 || N == 4)) {
    unsigned raw[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      raw[i] = FromFloat<T>(values[2 * i]).bits |
               static_cast<unsigned>(FromFloat<T>(values[2 * i + 1]).bits) << 16;
    }
    if constexpr (N == 8) {
      StoreWhole(place, make_uint4(raw[0], raw[1], raw[2], raw[3]));
    } else {
      StoreWhole(place, make_uint2(raw[0], raw[1]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) place[i] = FromFloat<T>(values[i]);
  }
}

// exp(x - y). The difference first: its rounding is relative to it, not to the numbers.
__device__ inline float ExpOfDifference(float x, float y) {
  constexpr float kLog2E = 1.44269504f;
  return exp2f((x - y) * kLog2E);
}

// ---- Sums ---------------------------------------------------------------------------------------

// All lanes get the result, whose order of additions is fixed.
__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}

// NaN wins.
__device__ inline float Larger(float x, float y) { return x > y || x != x ? x : y; }

__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    value = Larger(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  return value;
}

// All threads of a one-dimensional block, which is of whole warps, get the sum. `part` is shared
// memory of 32 floats that nothing else uses.
__device__ inline float BlockSum(float value, float* part) {
  value = WarpSum(value);
  if (blockDim.x == kWarp) return value;
  const unsigned lane = threadIdx.x % kWarp;
  __syncthreads();
  if (lane == 0) part[threadIdx.x / kWarp] = value;
  __syncthreads();
  return WarpSum(lane < blockDim.x / kWarp ? part[lane] : 0.0f);
}

}  // namespace meshwright::ops::cuda
