#include "ir/dtype.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace meshwright::ir {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 7> kNames = {{{DType::kF32, "f32"},
                                                                       {DType::kF64, "f64"},
                                                                       {DType::kBF16, "bf16"},
                                                                       {DType::kF16, "f16"},
                                                                       {DType::kI32, "i32"},
                                                                       {DType::kI64, "i64"},
                                                                       {DType::kBool, "bool"}}};
}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "invalid";
}

Result<DType> ParseDType(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return Fail(InvalidArgument(
      fmt::format("unknown dtype '{}'; known: f32 f64 bf16 f16 i32 i64 bool", name)));
}

}  // namespace meshwright::ir
