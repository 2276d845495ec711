#include "base/json_int.h"

#include <fmt/format.h>

namespace meshwright {

Status NoJsonInt(std::string_view key, std::string_view value, const std::string& least,
                 const std::string& most) {
  constexpr size_t kMostShown = 100;
  return InvalidArgument(fmt::format("\"{}\" is {}{}, not a whole number from {} to {}", key,
                                     value.substr(0, kMostShown),
                                     value.size() > kMostShown ? "..." : "", least, most));
}

}  // namespace meshwright
