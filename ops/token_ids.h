// Checks on token ids and labels: integers that index a table come from data files, so a bad one is
// the user's error.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "ir/attrs.h"
#include "ir/op.h"

namespace meshwright::ops {

inline constexpr int64_t kDefaultIgnoreIndex = ir::kDefaultIgnoreIndex;

// The id that embedding leaves out, if there is one.
std::optional<int64_t> IgnoredId(const ir::Attrs& attrs);

// kInvalidArgument naming the first id outside [0, table_rows), its position and the table's size.
// `ignored` ids pass.
Status CheckTokenIds(std::string_view op, const int32_t* ids, int64_t count, int64_t table_rows,
                     std::optional<int64_t> ignored = std::nullopt);

}  // namespace meshwright::ops
