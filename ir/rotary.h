// The angles of rotary positions: radians from one position to the next, of each pair of a head.
//
// They are base^(-2i/e), or, where a model stretches them (models/rope.h), the numbers of
// {frequencies}: decimal texts that read back as the same doubles.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/attrs.h"

namespace meshwright::ir {

// Of a head of 2 * pairs elements. Errors: kInvalidArgument where {frequencies} are not as many
// finite numbers.
Result<std::vector<double>> RotaryFrequencies(const Attrs& attrs, int64_t pairs);
// The value of {frequencies} for these numbers.
std::vector<std::string> FormatFrequencies(const std::vector<double>& frequencies);

}  // namespace meshwright::ir
