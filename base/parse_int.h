// Numbers that people write in keys and pins.
//
// Thread rule: a pure function.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace meshwright {

// A decimal number that is all of the text; none: it is no such number, or too large.
inline std::optional<int64_t> ParseInt(std::string_view text) {
  int64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace meshwright
