#include "cli/log_time.h"

#include <fmt/format.h>

#include <map>

#include "base/log_lines.h"
#include "base/text.h"

namespace meshwright::cli {

Result<int64_t> SinceUnixMs(const std::string& text, int64_t now_unix_ms) {
  if (text.empty()) return 0;
  if (const auto time = ParseTimestamp(text)) return *time;
  static const std::map<char, int64_t> units = {
      {'s', 1'000}, {'m', 60'000}, {'h', 3'600'000}, {'d', 86'400'000}};
  constexpr int64_t kMostUnits = 1'000'000;
  const auto unit = units.find(text.back());
  const auto count = ParseInt(text.substr(0, text.size() - 1));
  if (unit != units.end() && count && *count >= 0 && *count <= kMostUnits) {
    return now_unix_ms - *count * unit->second;
  }
  return Fail(InvalidArgument(fmt::format(
      "--since '{}': write an age as 90s, 10m, 2h or 1d, or a time as 2026-03-01T12:00:00Z",
      text)));
}

}  // namespace meshwright::cli
