// Windows: how windows of a convolution or a pooling lie over images, out of the attributes of a
// node.
//
// Images are [batch, height, width, channels]. Thread rule: plain values.
#pragma once

#include <array>
#include <cstdint>

#include "ir/attrs.h"
#include "ir/graph.h"

namespace meshwright::ir {

struct Windows {
  std::array<int64_t, 2> size = {1, 1};  // height, width
  std::array<int64_t, 2> strides = {1, 1};
  std::array<int64_t, 2> before = {0, 0};  // padding: top, left
  std::array<int64_t, 2> after = {0, 0};   // bottom, right

  // Of a node whose window is not the attribute 'window': of a convolution the kernel's dims.
  static Windows Of(const Attrs& attrs, std::array<int64_t, 2> size);
  static Windows Of(const Attrs& attrs);

  // Windows along dim 0 (height) or 1 (width) of an image that has `extent`; 0: none fits.
  int64_t CountIn(size_t dim, int64_t extent) const;
};

}  // namespace meshwright::ir
