// Elements of a file as elements of a graph, by the rule of ir/element.h.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ir/dtype.h"
#include "ir/element.h"

namespace meshwright::data {

// Writes the elements of `from` (little endian, in any alignment) as `dtype`. Returns the index of
// the first one whose value `dtype` does not hold, or -1. REQUIRES: ir::ReadableAs(element, dtype),
// `to` has room for as many elements.
int64_t ConvertElements(ir::Element element, std::span<const std::byte> from, ir::DType dtype,
                        std::byte* to);

// Element `index` of `from` as a whole number; of bool and integers only. u64 beyond i64: -1.
int64_t WholeNumberAt(ir::Element element, const std::byte* from, int64_t index);

}  // namespace meshwright::data
