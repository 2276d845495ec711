// Points of three classes, as a function of seed, step and row: what the actor "points" makes, and
// what a file of the same rows holds.
#pragma once

#include <array>
#include <cstdint>

namespace points {

inline constexpr int kFeatures = 4;
using Features = std::array<float, kFeatures>;

inline Features FeaturesOf(uint64_t seed, int64_t step, int64_t row) {
  Features x{};
  uint64_t bits = seed * 1'000'003 + static_cast<uint64_t>(step) * 257 + static_cast<uint64_t>(row);
  for (float& value : x) {
    bits = bits * 6'364'136'223'846'793'005 + 1'442'695'040'888'963'407;
    value = static_cast<float>(bits >> 40) / static_cast<float>(1 << 24) - 0.5F;
  }
  return x;
}

inline int32_t LabelOf(const Features& x) {
  if (x[0] + x[1] > 0.2F) return 0;
  return x[2] > x[3] ? 1 : 2;
}

}  // namespace points
