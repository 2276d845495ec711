// Element types of files: what arrays on disk hold, more than a graph computes with.
//
// A field may be fed as its own type or as one that its values fit: integers to integers are
// checked value by value where the type is narrower, integers to floats only where every value is
// exact (8 and 16 bits to f32, up to 32 bits to f64), bool to anything as 0 and 1, floats to f32
// and f64 (f64 to f32 rounds, as weights do).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "ir/dtype.h"

namespace meshwright::ir {

enum class Element : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
};

int64_t ElementBytes(Element element);
std::string_view ElementName(Element element);  // "bool", "u8", ..., "f64"
// Errors: kInvalidArgument: unknown name, lists the known ones.
Result<Element> ParseElement(std::string_view name);
// By the names of the safetensors format: "U8", "BF16". None: a type that cannot be fed.
std::optional<Element> ElementOfSafetensors(std::string_view name);

// Whether a feed of `dtype` can read a field of `element`.
bool ReadableAs(Element element, DType dtype);

}  // namespace meshwright::ir
