#include "ops/token_ids.h"

#include <fmt/format.h>

#include "ops/kernel.h"

namespace meshwright::ops {
namespace {

Status BadId(std::string_view op, int32_t id, int64_t position, int64_t table_rows) {
  return InvalidArgument(
      fmt::format("{}: id {} at position {} is outside the table of {} rows; the data was made "
                  "with another vocabulary, or the model's vocabulary is too small",
                  op, id, position, table_rows));
}

}  // namespace

std::optional<int64_t> IgnoredId(const ir::Attrs& attrs) {
  if (!attrs.Has("ignore_index")) return std::nullopt;
  return attrs.Int("ignore_index");
}

Status CheckTokenIds(std::string_view op, const int32_t* ids, int64_t count, int64_t table_rows,
                     std::optional<int64_t> ignored) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && ids[i] < table_rows) continue;
    if (ignored && ids[i] == *ignored) continue;
    return BadId(op, ids[i], i, table_rows);
  }
  return {};
}

Status FaultStatus(const Fault& fault) {
  if (fault.found == 0) return {};
  const std::string_view op = ir::OpName(static_cast<ir::Op>(fault.found - 1));
  return BadId(op, fault.id, fault.position, fault.table_rows);
}

}  // namespace meshwright::ops
