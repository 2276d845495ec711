#include "base/log_lines.h"

#include <array>
#include <charconv>
#include <string>

namespace meshwright {
namespace {

// Behind this nobody looks for a time or a level: it is the message.
constexpr size_t kHeadBytes = 160;
constexpr size_t kStampBytes = 19;  // "2026-03-01T12:00:00"

std::optional<int64_t> Digits(std::string_view text, size_t from, size_t count) {
  int64_t number = 0;
  if (from + count > text.size()) return std::nullopt;
  for (const char c : text.substr(from, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

// Days since 1970-01-01 of a day of the Gregorian calendar. Source: H. Hinnant, "chrono-compatible
// low-level date algorithms", days_from_civil.
int64_t DaysOf(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const int64_t era = year / 400;
  const int64_t of_era = year - era * 400;
  const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// What stands at the begin of `text`.
std::optional<int64_t> StampAt(std::string_view text) {
  if (text.size() < kStampBytes || text[4] != '-' || text[7] != '-' || text[10] != 'T' ||
      text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto year = Digits(text, 0, 4);
  const auto month = Digits(text, 5, 2);
  const auto day = Digits(text, 8, 2);
  const auto hour = Digits(text, 11, 2);
  const auto minute = Digits(text, 14, 2);
  const auto second = Digits(text, 17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (*month < 1 || *month > 12 || *day < 1 || *day > 31) return std::nullopt;
  const bool has_ms = text.size() > kStampBytes && text[kStampBytes] == '.';
  const int64_t ms = has_ms ? Digits(text, kStampBytes + 1, 3).value_or(0) : 0;
  const int64_t seconds =
      ((DaysOf(*year, *month, *day) * 24 + *hour) * 60 + *minute) * 60 + *second;
  return seconds * 1000 + ms;
}

// The line without "executor 4711 of job 3 | "; the whole line where it has no such mark.
std::string_view BehindMark(std::string_view line) {
  const std::string_view head = line.substr(0, kHeadBytes);
  const size_t bar = head.find(" | ");
  return bar == std::string_view::npos ? line : line.substr(bar + 3);
}

std::string_view Member(std::string_view line, std::string_view key) {
  const size_t at = line.substr(0, kHeadBytes).find(key);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + key.size());
}

// Which process a job has and how it ended is said by the worker, of the job; behind its own name,
// which may be long.
std::string_view AboutJob(std::string_view line) {
  constexpr std::string_view kExecutor = ": the executor of job ";
  constexpr size_t kNameBytes = 256;
  const size_t at = line.substr(0, kHeadBytes + kNameBytes).find(kExecutor);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + kExecutor.size());
}

int64_t NumberAt(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? number : 0;
}

}  // namespace

std::optional<int64_t> UnixMsOfLine(std::string_view line) {
  if (line.starts_with('{')) return StampAt(Member(line, R"("time":")"));
  if (const auto own = StampAt(line)) return own;
  return StampAt(BehindMark(line));
}

std::optional<int64_t> ParseTimestamp(std::string_view text) {
  const size_t bytes = text.size();
  const bool whole = bytes == kStampBytes + 1 || bytes == kStampBytes + 5;
  if (!whole || text.back() != 'Z') return std::nullopt;
  if (bytes == kStampBytes + 5 && !Digits(text, kStampBytes + 1, 3)) return std::nullopt;
  return StampAt(text);
}

LogLevel LevelOfLine(std::string_view line) {
  std::string_view word;
  if (line.starts_with('{')) {
    word = Member(line, R"("level":")");
  } else {
    const std::string_view text = StampAt(line) ? line : BehindMark(line);
    const size_t space = text.substr(0, kHeadBytes).find(' ');
    if (space != std::string_view::npos) word = text.substr(space + 1);
  }
  constexpr std::array<LogLevel, 4> kLevels = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn,
                                               LogLevel::kError};
  for (const LogLevel level : kLevels) {
    if (word.starts_with(LogLevelName(level))) return level;
  }
  return LogLevel::kInfo;
}

int64_t JobOfLine(std::string_view line) {
  if (line.starts_with('{')) {
    const std::string_view job = Member(line, R"("job":)");
    return NumberAt(job.empty() ? AboutJob(line) : job);
  }
  if (StampAt(line)) return NumberAt(AboutJob(line));
  const std::string_view head = line.substr(0, kHeadBytes);
  const size_t bar = head.find(" | ");
  if (bar == std::string_view::npos) return 0;
  return NumberAt(Member(line.substr(0, bar), " of job "));
}

}  // namespace meshwright
