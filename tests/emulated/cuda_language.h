// CUDA's kernel language for a plain C++ compiler: the same .cu files run on the host.
//
// Included before everything else (-include). A launch becomes work of an emulated stream
// (driver.h) that runs all blocks, in an order drawn from the launch. A thread of a block runs as a
// function until it meets a barrier or a shuffle; only then it keeps its stack and others go on, so
// kernels without barriers cost what loops cost. Threads that wait for others that will not come
// end the process with a message. Dynamic shared memory holds NaNs when a block starts.
//
// Thread rule: each host thread runs blocks of its own; what is below belongs to it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block at a time runs in a host thread.
#define __shared__ static thread_local

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct uint2 {
  unsigned x, y;
} __attribute__((may_alias, aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((may_alias, aligned(16)));

inline thread_local constinit dim3 threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace meshwright::emulated {

// Puts the kernel into the stream. The code of a launch that a GPU would refuse: 9.
int32_t PushBlocks(void* stream, dim3 grid, dim3 block, int64_t shared_bytes,
                   std::function<void()> thread);
std::byte* DynamicShared();
// All threads of the block that are still there.
void WaitForBlock();
// The lanes of the warp in `mask`, each with a value; returns that of `lane`.
uint64_t Exchange(unsigned mask, uint64_t value, int lane);
// The values of all lanes in `mask`, one after the other, handed to `visit`.
void ExchangeAll(unsigned mask, uint64_t value, uint64_t (&values)[32]);
int Lane();

template <typename T>
T Shuffle(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(mask, bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace meshwright::emulated

inline void __syncthreads() { meshwright::emulated::WaitForBlock(); }
inline void __syncwarp(unsigned mask = ~0u) {
  (void)meshwright::emulated::Exchange(mask, 0, meshwright::emulated::Lane());
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return meshwright::emulated::Shuffle(mask, value, lane & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return meshwright::emulated::Shuffle(mask, value, meshwright::emulated::Lane() ^ bits);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const int from = meshwright::emulated::Lane() + static_cast<int>(by);
  return meshwright::emulated::Shuffle(mask, value, from < 32 ? from : from - static_cast<int>(by));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const int from = meshwright::emulated::Lane() - static_cast<int>(by);
  return meshwright::emulated::Shuffle(mask, value, from >= 0 ? from : from + static_cast<int>(by));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  uint64_t values[32] = {};
  meshwright::emulated::ExchangeAll(mask, predicate != 0, values);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= (mask >> i & 1 && values[i] != 0 ? 1u : 0u) << i;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

// Threads change only where they wait: plain operations are atomic.
template <typename T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old + value;
  return old;
}
template <typename T>
T atomicMax(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old < value ? value : old;
  return old;
}
template <typename T>
T atomicMin(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = value < old ? value : old;
  return old;
}
template <typename T>
T atomicOr(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old | value;
  return old;
}
template <typename T>
T atomicExch(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = value;
  return old;
}
template <typename T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *place;
  if (old == expected) *place = value;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

using std::isinf;
using std::isnan;
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((uint64_t{x} * y) >> 32);
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
template <typename T>
T __ldg(const T* place) {
  return *place;
}
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace meshwright::emulated {

template <typename... Params>
int32_t Launch(void* stream, dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(Params...),
               std::type_identity_t<Params>... args) {
  return PushBlocks(stream, grid, block, shared_bytes,
                    [kernel, kept = std::tuple<Params...>(args...)] { std::apply(kernel, kept); });
}

}  // namespace meshwright::emulated
