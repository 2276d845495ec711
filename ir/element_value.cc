#include "ir/element_value.h"

#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace meshwright::ir {
namespace {

template <typename T>
T LoadAs(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void StoreAs(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

double LoadElement(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return LoadAs<double>(at);
    case DType::kF32:
      return LoadAs<float>(at);
    case DType::kBF16:
      return Bf16ToFloat(LoadAs<uint16_t>(at));
    case DType::kF16:
      return F16ToFloat(LoadAs<uint16_t>(at));
    case DType::kI64:
      return static_cast<double>(LoadAs<int64_t>(at));
    case DType::kI32:
      return LoadAs<int32_t>(at);
    case DType::kBool:
      return LoadAs<uint8_t>(at);
  }
  return 0;
}

void StoreElement(std::byte* at, DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      return StoreAs(at, value);
    case DType::kF32:
      return StoreAs(at, static_cast<float>(value));
    case DType::kBF16:
      return StoreAs(at, FloatToBf16(static_cast<float>(value)));
    case DType::kF16:
      return StoreAs(at, FloatToF16(static_cast<float>(value)));
    case DType::kI64:
      return StoreAs(at, static_cast<int64_t>(value));
    case DType::kI32:
      return StoreAs(at, static_cast<int32_t>(value));
    case DType::kBool:
      return StoreAs(at, static_cast<uint8_t>(value != 0 ? 1 : 0));
  }
}

}  // namespace meshwright::ir
