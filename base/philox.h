// Philox4x32-10: a counter-based random number generator.
//
// The i-th number is a pure function of (key, counter): no state, no order. Initial weights,
// dropout masks and the order of samples are functions of (seed, step, stream, global element
// index), so the number of devices and the way tensors are split never change them.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11, section 5.2 and
// table 2 (10 rounds).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace meshwright {

using PhiloxBlock = std::array<uint32_t, 4>;

// One block of 4 x 32 random bits for a 64-bit key and a 128-bit counter.
constexpr PhiloxBlock Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                   static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The key of a stream under a seed.
constexpr uint64_t PhiloxKey(uint64_t seed, uint64_t stream) {
  return seed ^ (stream * 0x9E3779B97F4A7C15ull);
}

// The 32 random bits of element `index` of stream (seed, stream, step): word index%4 of block
// index/4.
constexpr uint32_t PhiloxBits(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return Philox(PhiloxKey(seed, stream), index >> 2, step)[index & 3];
}

// Uniform in [0, 1) with 24 random bits: exact in float, so that float and double runs draw the
// same masks.
constexpr double UniformFromBits(uint32_t bits) { return (bits >> 8) * 0x1.0p-24; }

// Standard normal number of element `index`: Box-Muller makes those of elements 2q and 2q+1 from
// words 2(q%2) and 2(q%2)+1 of block q/2.
inline double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  const PhiloxBlock block = Philox(PhiloxKey(seed, stream), index >> 2, step);
  const size_t word = index & 2;
  const double u1 = (static_cast<double>(block[word]) + 1.0) * 0x1.0p-32;  // (0, 1]
  const double u2 = static_cast<double>(block[word + 1]) * 0x1.0p-32;
  const double angle = 6.283185307179586476925286766559 * u2;
  return std::sqrt(-2.0 * std::log(u1)) * ((index & 1) == 0 ? std::cos(angle) : std::sin(angle));
}

// The same for what has no step: initial values.
inline constexpr uint64_t kNoStep = ~uint64_t{0};
inline double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  return PhiloxNormal(seed, stream, kNoStep, index);
}

// Stream number of a name: FNV-1a, 64 bit.
constexpr uint64_t StreamOf(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace meshwright
