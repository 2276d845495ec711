// Environment variables as a function, so that tests bring their own.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::config {

using Environment = std::function<std::optional<std::string>(const std::string&)>;

inline std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// The names of all variables that begin so, in the order of the environment.
inline std::vector<std::string> ProcessEnvironmentNames(std::string_view prefix) {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.substr(0, prefix.size()) != prefix) continue;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace meshwright::config
