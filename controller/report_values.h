// Scalars of a report by name.
//
// Thread rule: pure functions.
#pragma once

#include <limits>
#include <map>
#include <string>

namespace meshwright::controller {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

inline double ValueOr(const std::map<std::string, double>& values, const std::string& name,
                      double fallback) {
  const auto it = values.find(name);
  return it == values.end() ? fallback : it->second;
}

}  // namespace meshwright::controller
