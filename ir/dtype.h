// Element types of tensors.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace meshwright::ir {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64, kBool };

constexpr int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kBool:
      return 1;
  }
  return 0;
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

// Types of one arithmetic: 16-bit floats are widened where they are computed with.
constexpr bool ComputesInF32(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

std::string_view DTypeName(DType dtype);  // "f32", "f64", "bf16", "f16", "i32", "i64", "bool"
// Errors: kInvalidArgument: unknown name, lists the known ones.
Result<DType> ParseDType(std::string_view name);

}  // namespace meshwright::ir
