#include "ir/images.h"

namespace meshwright::ir {

Windows Windows::Of(const Attrs& attrs, std::array<int64_t, 2> size) {
  Windows windows;
  windows.size = size;
  const std::vector<int64_t> strides = attrs.Ints("strides");
  if (strides.size() == 2) windows.strides = {strides[0], strides[1]};
  const std::vector<int64_t> padding = attrs.Ints("padding");
  if (padding.size() == 4) {
    windows.before = {padding[0], padding[1]};
    windows.after = {padding[2], padding[3]};
  }
  return windows;
}

Windows Windows::Of(const Attrs& attrs) {
  const std::vector<int64_t> window = attrs.Ints("window");
  return window.size() == 2 ? Of(attrs, {window[0], window[1]}) : Of(attrs, {1, 1});
}

int64_t Windows::CountIn(size_t dim, int64_t extent) const {
  const int64_t room = before[dim] + extent + after[dim] - size[dim];
  return room < 0 ? 0 : room / strides[dim] + 1;
}

}  // namespace meshwright::ir
