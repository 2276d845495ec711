#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace meshwright {
namespace {

std::string Lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::optional<int64_t> ParseInt(std::string_view text) {
  int64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

int64_t EditDistance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  // Three rows of the table: distances of prefixes of a (ending two before, one before, here).
  std::vector<int64_t> two_before(width), before(width), here(width);
  for (size_t j = 0; j < width; ++j) before[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    here[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j < width; ++j) {
      const int64_t replaced = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      here[j] = std::min({before[j] + 1, here[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        here[j] = std::min(here[j], two_before[j - 2] + 1);
      }
    }
    two_before.swap(before);
    before.swap(here);
  }
  return before[b.size()];
}

std::optional<std::string> NearestName(std::string_view name,
                                       const std::vector<std::string>& candidates) {
  const std::string wanted = Lower(name);
  const std::string* best = nullptr;
  int64_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int64_t distance = EditDistance(wanted, Lower(candidate));
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best == nullptr) return std::nullopt;
  const auto longest = static_cast<int64_t>(std::max(best->size(), name.size()));
  if (best_distance * 3 > std::max<int64_t>(longest, 3)) return std::nullopt;
  return *best;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::optional<std::string> nearest = NearestName(name, candidates);
  return nearest ? fmt::format(" (did you mean '{}'?)", *nearest) : std::string();
}

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double magnitude = std::abs(static_cast<double>(bytes));
  if (magnitude < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.995 would print as "1024.00": the next unit reads better.
  while (std::abs(value) >= 1023.995 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds < 0) return "-" + FormatDuration(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 0.9995e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 8.64e12) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string FormatCount(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string FormatShortCount(double count) {
  static constexpr std::array<const char*, 6> kUnits = {"", "k", "M", "B", "T", "P"};
  size_t unit = 0;
  while (std::abs(count) >= 999.95 && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.4g}", count);
  return fmt::format("{:.1f}{}", count, kUnits[unit]);
}

}  // namespace meshwright
