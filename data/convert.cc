#include "data/convert.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/half.h"

namespace meshwright::data {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian, as we are");

// 16-bit floats, as types of their own.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

float Widen(F16 value) { return F16ToFloat(value.bits); }
float Widen(BF16 value) { return Bf16ToFloat(value.bits); }
int32_t Widen(Bool value) { return value.byte != 0 ? 1 : 0; }
template <typename T>
T Widen(T value) {
  return value;
}

template <typename From>
From Load(const std::byte* at, int64_t index) {
  From value;
  std::memcpy(&value, at + index * static_cast<int64_t>(sizeof(From)), sizeof(From));
  return value;
}

template <typename From, typename To>
int64_t Convert(const std::byte* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto value = Widen(Load<From>(from, i));
    if constexpr (std::is_integral_v<To> && std::is_integral_v<decltype(value)>) {
      if (!std::in_range<To>(value)) return i;
    }
    const auto out = static_cast<To>(value);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &out, sizeof(To));
  }
  return -1;
}

template <typename From>
int64_t ConvertFrom(const std::byte* from, int64_t count, ir::DType dtype, std::byte* to) {
  switch (dtype) {
    case ir::DType::kI32:
      return Convert<From, int32_t>(from, count, to);
    case ir::DType::kI64:
      return Convert<From, int64_t>(from, count, to);
    case ir::DType::kF32:
      return Convert<From, float>(from, count, to);
    case ir::DType::kF64:
      return Convert<From, double>(from, count, to);
    default:
      MW_CHECK(false) << "no conversion to " << ir::DTypeName(dtype);
      return 0;
  }
}

// Calls visit(T{}) with the C++ type of an element.
template <typename Visit>
auto ForElement(ir::Element element, Visit visit) {
  switch (element) {
    case ir::Element::kBool:
      return visit(Bool{});
    case ir::Element::kU8:
      return visit(uint8_t{});
    case ir::Element::kI8:
      return visit(int8_t{});
    case ir::Element::kU16:
      return visit(uint16_t{});
    case ir::Element::kI16:
      return visit(int16_t{});
    case ir::Element::kU32:
      return visit(uint32_t{});
    case ir::Element::kI32:
      return visit(int32_t{});
    case ir::Element::kU64:
      return visit(uint64_t{});
    case ir::Element::kI64:
      return visit(int64_t{});
    case ir::Element::kF16:
      return visit(F16{});
    case ir::Element::kBF16:
      return visit(BF16{});
    case ir::Element::kF32:
      return visit(float{});
    case ir::Element::kF64:
      break;
  }
  return visit(double{});
}

// The bytes are those of the graph's type.
bool IsCopy(ir::Element element, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBF16:
      return element == ir::Element::kBF16;
    case ir::DType::kF16:
      return element == ir::Element::kF16;
    case ir::DType::kI32:
      return element == ir::Element::kI32;
    case ir::DType::kI64:
      return element == ir::Element::kI64;
    case ir::DType::kF32:
      return element == ir::Element::kF32;
    case ir::DType::kF64:
      return element == ir::Element::kF64;
    case ir::DType::kBool:
      return false;  // files may hold other bytes than 0 and 1
  }
  return false;
}

}  // namespace

int64_t ConvertElements(ir::Element element, std::span<const std::byte> from, ir::DType dtype,
                        std::byte* to) {
  MW_CHECK(ir::ReadableAs(element, dtype))
      << ir::ElementName(element) << " as " << ir::DTypeName(dtype);
  MW_CHECK(from.size() % static_cast<size_t>(ir::ElementBytes(element)) == 0)
      << from.size() << " bytes of " << ir::ElementName(element);
  if (IsCopy(element, dtype)) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return -1;
  }
  if (dtype == ir::DType::kBool) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = std::byte{from[i] != std::byte{0}};
    return -1;
  }
  const auto count = static_cast<int64_t>(from.size()) / ir::ElementBytes(element);
  return ForElement(element, [&](auto zero) {
    return ConvertFrom<decltype(zero)>(from.data(), count, dtype, to);
  });
}

int64_t WholeNumberAt(ir::Element element, const std::byte* from, int64_t index) {
  return ForElement(element, [&](auto zero) -> int64_t {
    const auto value = Widen(Load<decltype(zero)>(from, index));
    if constexpr (std::is_integral_v<decltype(value)>) {
      return std::in_range<int64_t>(value) ? static_cast<int64_t>(value) : -1;
    }
    MW_CHECK(false) << "a whole number of " << ir::ElementName(element);
    return 0;
  });
}

}  // namespace meshwright::data
