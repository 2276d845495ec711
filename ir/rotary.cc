#include "ir/rotary.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace meshwright::ir {

Result<std::vector<double>> RotaryFrequencies(const Attrs& attrs, int64_t pairs) {
  MW_CHECK(pairs >= 0) << pairs;
  std::vector<double> frequencies;
  if (!attrs.Has("frequencies")) {
    const double base = attrs.Real("base", 10000.0);
    for (int64_t i = 0; i < pairs; ++i) {
      frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
    }
    return frequencies;
  }
  for (const std::string& text : attrs.Strs("frequencies")) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end || !std::isfinite(value)) {
      return Fail(
          InvalidArgument(fmt::format("rotary: frequency '{}' is not a finite number", text)));
    }
    frequencies.push_back(value);
  }
  if (static_cast<int64_t>(frequencies.size()) != pairs) {
    return Fail(InvalidArgument(
        fmt::format("rotary: {} frequencies for {} pairs of a head", frequencies.size(), pairs)));
  }
  return frequencies;
}

std::vector<std::string> FormatFrequencies(const std::vector<double>& frequencies) {
  std::vector<std::string> texts;
  for (const double value : frequencies) {
    MW_CHECK(std::isfinite(value)) << value;
    texts.push_back(fmt::format("{}", value));
  }
  return texts;
}

}  // namespace meshwright::ir
