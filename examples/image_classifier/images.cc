#include "images.h"

#include <random>

namespace image_classifier {
namespace {

constexpr int64_t kShape = 5;  // pixels of a shape's side

// Whether pixel (row, column) of a shape is bright.
bool Bright(int32_t label, int64_t row, int64_t column) {
  const bool in_bar = row == kShape / 2;
  const bool in_column = column == kShape / 2;
  if (label == 0) return in_bar;
  if (label == 1) return in_column;
  if (label == 2) return in_bar || in_column;
  return row == 0 || column == 0 || row == kShape - 1 || column == kShape - 1;
}

}  // namespace

Images Draw(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> label(0, kClasses - 1);
  std::uniform_int_distribution<int64_t> place(0, kSide - kShape);
  std::normal_distribution<double> noise(0, 0.2);
  Images images;
  for (int64_t image = 0; image < count; ++image) {
    images.labels.push_back(label(random));
    const int64_t top = place(random);
    const int64_t left = place(random);
    for (int64_t row = 0; row < kSide; ++row) {
      for (int64_t column = 0; column < kSide; ++column) {
        const bool inside =
            row >= top && row < top + kShape && column >= left && column < left + kShape;
        const bool bright = inside && Bright(images.labels.back(), row - top, column - left);
        images.pixels.push_back((bright ? 1 : 0) + noise(random));
      }
    }
  }
  return images;
}

}  // namespace image_classifier
