#include "ir/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace meshwright::ir {
namespace {

enum class Kind : uint8_t { kBool, kInteger, kFloat };

struct Row {
  Element element;
  std::string_view name;
  std::string_view safetensors;
  int64_t bytes;
  Kind kind;
  DType same;  // the graph's type that holds the bytes as they are; kBool of kBool only
  bool has_same;
};

constexpr std::array<Row, 13> kElements = {{
    {Element::kBool, "bool", "BOOL", 1, Kind::kBool, DType::kBool, true},
    {Element::kU8, "u8", "U8", 1, Kind::kInteger, DType::kBool, false},
    {Element::kI8, "i8", "I8", 1, Kind::kInteger, DType::kBool, false},
    {Element::kU16, "u16", "U16", 2, Kind::kInteger, DType::kBool, false},
    {Element::kI16, "i16", "I16", 2, Kind::kInteger, DType::kBool, false},
    {Element::kU32, "u32", "U32", 4, Kind::kInteger, DType::kBool, false},
    {Element::kI32, "i32", "I32", 4, Kind::kInteger, DType::kI32, true},
    {Element::kU64, "u64", "U64", 8, Kind::kInteger, DType::kBool, false},
    {Element::kI64, "i64", "I64", 8, Kind::kInteger, DType::kI64, true},
    {Element::kF16, "f16", "F16", 2, Kind::kFloat, DType::kF16, true},
    {Element::kBF16, "bf16", "BF16", 2, Kind::kFloat, DType::kBF16, true},
    {Element::kF32, "f32", "F32", 4, Kind::kFloat, DType::kF32, true},
    {Element::kF64, "f64", "F64", 8, Kind::kFloat, DType::kF64, true},
}};

const Row& RowOf(Element element) {
  const auto index = static_cast<size_t>(element);
  MW_CHECK(index < kElements.size() && kElements[index].element == element) << "element " << index;
  return kElements[index];
}

}  // namespace

int64_t ElementBytes(Element element) { return RowOf(element).bytes; }

std::string_view ElementName(Element element) { return RowOf(element).name; }

Result<Element> ParseElement(std::string_view name) {
  const auto row = std::find_if(kElements.begin(), kElements.end(),
                                [&](const Row& known) { return known.name == name; });
  if (row != kElements.end()) return row->element;
  return Fail(InvalidArgument(fmt::format(
      "unknown element type '{}'; known: bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64",
      name)));
}

std::optional<Element> ElementOfSafetensors(std::string_view name) {
  const auto row = std::find_if(kElements.begin(), kElements.end(),
                                [&](const Row& known) { return known.safetensors == name; });
  return row == kElements.end() ? std::nullopt : std::optional(row->element);
}

bool ReadableAs(Element element, DType dtype) {
  const Row& row = RowOf(element);
  if (row.has_same && row.same == dtype) return true;
  const bool whole = dtype == DType::kI32 || dtype == DType::kI64;
  switch (row.kind) {
    case Kind::kBool:
      return whole || dtype == DType::kF32 || dtype == DType::kF64;
    case Kind::kInteger:
      return whole || (dtype == DType::kF32 && row.bytes <= 2) ||
             (dtype == DType::kF64 && row.bytes <= 4);
    case Kind::kFloat:
      return dtype == DType::kF32 || dtype == DType::kF64;
  }
  return false;
}

}  // namespace meshwright::ir
