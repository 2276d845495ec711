// Small gray images with one of four shapes somewhere on a noisy ground.
//
// Thread rule: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

namespace image_classifier {

inline constexpr int64_t kSide = 12;    // pixels
inline constexpr int64_t kClasses = 4;  // horizontal bar, vertical bar, cross, square

struct Images {
  std::vector<double> pixels;   // [count, kSide, kSide, 1]
  std::vector<int32_t> labels;  // [count]
};

// Other seeds give other images.
Images Draw(int64_t count, uint64_t seed);

}  // namespace image_classifier
