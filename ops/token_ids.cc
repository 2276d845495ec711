#include "ops/token_ids.h"

#include <fmt/format.h>

namespace meshwright::ops {

Status CheckTokenIds(std::string_view op, const int32_t* ids, int64_t count, int64_t table_rows,
                     std::optional<int64_t> ignored) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && ids[i] < table_rows) continue;
    if (ignored && ids[i] == *ignored) continue;
    return InvalidArgument(
        fmt::format("{}: id {} at position {} is outside the table of {} rows; the data was made "
                    "with another vocabulary, or the model's vocabulary is too small",
                    op, ids[i], i, table_rows));
  }
  return {};
}

}  // namespace meshwright::ops
