// Environment variables as a function, so that tests bring their own.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace meshwright::cli {

using Environment = std::function<std::optional<std::string>(const std::string&)>;

inline std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace meshwright::cli
