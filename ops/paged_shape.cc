#include "ops/paged_shape.h"

#include <fmt/format.h>

#include <cmath>

namespace meshwright::ops {

double PagedShape::scale() const { return 1.0 / std::sqrt(static_cast<double>(e)); }

PagedShape PagedShapeOf(const KernelSpec& spec) {
  const ir::Dims& q = spec.inputs[kPagedQ].dims;
  const ir::Dims& pages = spec.inputs[kPagedPages].dims;
  const ir::Dims& table = spec.inputs[kPagedTable].dims;
  PagedShape shape;
  shape.b = q[0];
  shape.n = q[1];
  shape.h = q[2];
  shape.g = pages[3];
  shape.e = q[3];
  shape.pages = pages[1];
  shape.page_tokens = pages[4];
  shape.texts = table[1];
  shape.text_pages = table[2];
  shape.window = spec.attrs.Int("window");
  return shape;
}

PagedToken PagedTokenAt(const PagedShape& shape, Inputs inputs, int64_t token) {
  const int32_t row = inputs[kPagedRow].as<int32_t>()[token];
  const int64_t batch = token / shape.n;
  if (row < 0) return {batch, 0, nullptr};
  const int32_t* table = inputs[kPagedTable].as<int32_t>();
  return {batch, inputs[kPagedPosition].as<int32_t>()[token],
          table + (batch * shape.texts + row) * shape.text_pages};
}

Status CheckPagedTokens(const PagedShape& shape, Inputs inputs) {
  for (int64_t token = 0; token < shape.b * shape.n; ++token) {
    const int32_t row = inputs[kPagedRow].as<int32_t>()[token];
    const int32_t position = inputs[kPagedPosition].as<int32_t>()[token];
    if (row < 0) continue;
    if (row >= shape.texts || position < 0 || position >= shape.text_pages * shape.page_tokens) {
      return InvalidArgument(fmt::format(
          "paged_attention: token {} is at position {} of row {}; the table has {} rows of {} "
          "pages of {} positions",
          token, position, row, shape.texts, shape.text_pages, shape.page_tokens));
    }
    const PagedToken at = PagedTokenAt(shape, inputs, token);
    for (int64_t i = shape.First(position) / shape.page_tokens; i <= position / shape.page_tokens;
         ++i) {
      if (at.pages[i] >= 0 && at.pages[i] < shape.pages) continue;
      return InvalidArgument(
          fmt::format("paged_attention: row {} of the table has page {} at {}; there are {} pages",
                      row, at.pages[i], i, shape.pages));
    }
  }
  return OkStatus();
}

}  // namespace meshwright::ops
