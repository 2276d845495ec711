// One element of a tensor's bytes as a double, and back: for what is compared or converted element
// by element, not for arithmetic.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>

#include "ir/dtype.h"

namespace meshwright::ir {

// Every type's values are doubles, but for integers beyond 2^53, which are rounded.
double LoadElement(const std::byte* at, DType dtype);

// Rounded to nearest even where the type is narrower; to float first where it has 16 bits. Integers
// lose their fraction.
void StoreElement(std::byte* at, DType dtype, double value);

}  // namespace meshwright::ir
