// Shared by the reader and the writer of safetensors: the dtypes of the format.
#pragma once

#include <optional>
#include <string_view>

#include "ir/dtype.h"

namespace meshwright::formats::internal {

struct FileDType {
  std::string_view name;
  int bits;
  std::optional<ir::DType> dtype;  // nullopt: not a type of the graph
};

// By name, or nullptr. The pointer's order is the format's order of dtypes (ascending).
const FileDType* FindFileDType(std::string_view name);
const FileDType& FileDTypeOf(ir::DType dtype);

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

}  // namespace meshwright::formats::internal
