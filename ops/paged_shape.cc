#include "ops/paged_shape.h"

#include <fmt/format.h>

#include <cmath>

namespace meshwright::ops {

double PagedShape::scale() const { return 1.0 / std::sqrt(static_cast<double>(e)); }

namespace {

PagedToken TokenAt(const PagedShape& shape, Inputs inputs, PagedOperand rows, int64_t of_batch,
                   int64_t token) {
  const int32_t row = inputs[rows].as<int32_t>()[token];
  const int64_t batch = token / of_batch;
  if (row < 0) return {batch, 0, nullptr};
  const int32_t* table = inputs[kPagedTable].as<int32_t>();
  return {batch, inputs[rows + 1].as<int32_t>()[token],
          table + (batch * shape.texts + row) * shape.text_pages};
}

// Of a token that is at `position` of `row`, whose pages from `first` on are looked at.
Status CheckPlace(const PagedShape& shape, const PagedToken& at, int32_t row, int64_t first) {
  for (int64_t i = first / shape.page_tokens; i <= at.position / shape.page_tokens; ++i) {
    if (at.pages[i] >= 0 && at.pages[i] < shape.pages) continue;
    return InvalidArgument(
        fmt::format("paged_attention: row {} of the table has page {} at {}; there are {} pages",
                    row, at.pages[i], i, shape.pages));
  }
  return OkStatus();
}

// Whether each row and position is of the table.
Status CheckRows(const PagedShape& shape, Inputs inputs, PagedOperand rows, int64_t count) {
  for (int64_t token = 0; token < count; ++token) {
    const int32_t row = inputs[rows].as<int32_t>()[token];
    const int32_t position = inputs[rows + 1].as<int32_t>()[token];
    if (row < 0) continue;
    if (row < shape.texts && position >= 0 && position < shape.text_pages * shape.page_tokens) {
      continue;
    }
    return InvalidArgument(fmt::format(
        "paged_attention: token {} is at position {} of row {}; the table has {} rows of {} "
        "pages of {} positions",
        token, position, row, shape.texts, shape.text_pages, shape.page_tokens));
  }
  return OkStatus();
}

}  // namespace

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
  shape.score_cap = spec.attrs.Real("score_cap");
  shape.keys = spec.inputs[kPagedK].dims[1];
  shape.own_places = spec.inputs.size() > kPagedKeyPosition;
  if (spec.inputs.size() > shape.bias()) shape.distances = spec.inputs[shape.bias()].dims[1];
  return shape;
}

PagedToken PagedTokenAt(const PagedShape& shape, Inputs inputs, int64_t token) {
  return TokenAt(shape, inputs, kPagedRow, shape.n, token);
}

PagedToken PagedKeyAt(const PagedShape& shape, Inputs inputs, int64_t key) {
  return TokenAt(shape, inputs, shape.own_places ? kPagedKeyRow : kPagedRow, shape.keys, key);
}

Status CheckPagedTokens(const PagedShape& shape, Inputs inputs) {
  const int64_t tokens = shape.b * shape.n;
  MW_TRY(CheckRows(shape, inputs, kPagedRow, tokens));
  for (int64_t token = 0; token < tokens; ++token) {
    const PagedToken at = PagedTokenAt(shape, inputs, token);
    if (at.pages == nullptr) continue;
    MW_TRY(CheckPlace(shape, at, inputs[kPagedRow].as<int32_t>()[token], shape.First(at.position)));
  }
  if (!shape.own_places) return OkStatus();
  const int64_t keys = shape.b * shape.keys;
  MW_TRY(CheckRows(shape, inputs, kPagedKeyRow, keys));
  for (int64_t key = 0; key < keys; ++key) {
    const PagedToken at = PagedKeyAt(shape, inputs, key);
    if (at.pages == nullptr) continue;
    MW_TRY(CheckPlace(shape, at, inputs[kPagedKeyRow].as<int32_t>()[key], at.position));
  }
  return OkStatus();
}

}  // namespace meshwright::ops
