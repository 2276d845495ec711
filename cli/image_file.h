// Images of files: PNG and JPEG as rows of pixels, and brought to another size.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace meshwright::cli {

// Red, green, blue, or grey alone: 0 to 255, [height, width, channels].
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 3;
  std::vector<uint8_t> pixels;

  uint8_t at(int64_t y, int64_t x, int64_t channel) const {
    return pixels[static_cast<size_t>((y * width + x) * channels + channel)];
  }
};

inline constexpr int64_t kMostImageSide = 1 << 15;
inline constexpr int64_t kMostImagePixels = int64_t{1} << 28;

// The image in a PNG or JPEG, with 3 channels or 1 (grey); what can be seen through is on black.
// REQUIRES: channels is 1 or 3. Errors: kInvalidArgument: neither of the two, damaged, or larger
// than the limits above.
Result<Image> DecodeImage(std::span<const std::byte> file, int64_t channels);

// Of another size: each pixel is the mean of what it covers with weights that fall linearly (a
// triangle as wide as the scale, and never narrower than a pixel of the source), first along rows,
// rounded, then along columns. As Pillow's BILINEAR. REQUIRES: sizes above 0.
Image Resized(const Image& image, int64_t height, int64_t width);

}  // namespace meshwright::cli
