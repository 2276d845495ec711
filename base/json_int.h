// Whole numbers of JSON documents, checked before they are taken.
//
// nlohmann's get<int64_t>() takes every number: 1.5 becomes 1, 1e308 is undefined behaviour, and
// what does not fit into the type wraps around. JsonInt takes what is written as a whole number, of
// the range that the reader wants, and says the key of what is none. tests/tidy keeps the raw way
// out of the tree.
//
// Thread rule: pure functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace meshwright {

template <typename T>
concept JsonWhole = std::integral<T> && !std::same_as<T, bool>;

// What JsonInt says: "\"top_k\" is 1e308, not a whole number from 0 to 9".
Status NoJsonInt(std::string_view key, std::string_view value, const std::string& least,
                 const std::string& most);

// The number, where the value is a whole one from `least` to `most`; none: it is not. `Json`:
// nlohmann's json or ordered_json.
template <JsonWhole T = int64_t, typename Json>
std::optional<T> FindJsonInt(const Json& value, T least = std::numeric_limits<T>::min(),
                             T most = std::numeric_limits<T>::max()) {
  const auto take = [least, most](auto number) -> std::optional<T> {
    if (std::cmp_less(number, least) || std::cmp_greater(number, most)) return std::nullopt;
    return static_cast<T>(number);
  };
  if (value.is_number_unsigned()) return take(value.template get<uint64_t>());
  if (value.is_number_integer()) return take(value.template get<int64_t>());
  return std::nullopt;
}

// The same. Errors: kInvalidArgument, naming `key`, the value and the range.
template <JsonWhole T = int64_t, typename Json>
Result<T> JsonInt(const Json& value, std::string_view key, T least = std::numeric_limits<T>::min(),
                  T most = std::numeric_limits<T>::max()) {
  if (const auto number = FindJsonInt<T>(value, least, most)) return *number;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return Fail(NoJsonInt(key, text, std::to_string(least), std::to_string(most)));
}

// A member of an object. Errors: also where it is missing, or what should have it is no object.
template <JsonWhole T = int64_t, typename Json>
Result<T> JsonIntOf(const Json& object, const char* key, T least = std::numeric_limits<T>::min(),
                    T most = std::numeric_limits<T>::max()) {
  if (!object.is_object() || object.find(key) == object.end()) {
    return Fail(InvalidArgument("\"" + std::string(key) + "\" is missing"));
  }
  return JsonInt<T>(*object.find(key), key, least, most);
}

}  // namespace meshwright
