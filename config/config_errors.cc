#include "config/config_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "config/config_keys.h"

namespace meshwright::config {
namespace {

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// Line and column of "job.toml:12:9".
void FillPosition(ConfigError& error) {
  const std::vector<std::string> parts = Split(error.place, ':');
  if (parts.size() < 3) return;
  const std::optional<int64_t> line = NumberOf(parts[parts.size() - 2]);
  const std::optional<int64_t> column = NumberOf(parts.back());
  if (!line || !column) return;
  error.line = *line;
  error.column = *column;
}

bool IsOfName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

// The first "section.name" of the text that is a key.
std::string KeyIn(std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    if (!IsOfName(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && IsOfName(text[end])) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    const size_t dot = word.find('.');
    if (dot != std::string_view::npos && FindKey(word.substr(0, dot), word.substr(dot + 1))) {
      return std::string(word);
    }
    begin = end;
  }
  return "";
}

}  // namespace

std::string HintIn(const std::string& message) {
  constexpr std::array<std::string_view, 4> kMarks = {"; ", " (did you mean ", " (it belongs to ",
                                                      ": write "};
  size_t begin = std::string::npos;
  std::string_view mark;
  for (const std::string_view each : kMarks) {
    const size_t at = message.find(each);
    if (at >= begin) continue;
    begin = at;
    mark = each;
  }
  if (begin == std::string::npos) return "";
  const bool in_brackets = mark[1] == '(';
  std::string hint = message.substr(begin + 2);
  // The bracket that closes it, wherever it stands: "did you mean 'a'?); known: a, b".
  if (const size_t end = in_brackets ? hint.find(')') : hint.npos; end != hint.npos) {
    hint.erase(end, 1);
  }
  return hint;
}

ConfigError ExplainError(const Status& status, const JobConfig& config) {
  ConfigError error;
  error.message = status.message();
  error.hint = HintIn(error.message);
  error.key = KeyIn(error.message);
  const auto origin = config.origins.find(error.key);
  if (origin != config.origins.end()) error.place = origin->second;
  FillPosition(error);
  return error;
}

void ConfigErrors::Add(const Status& status, std::string key, std::string place) {
  if (status.ok()) return;
  if (all_.empty()) first_ = status;
  ConfigError& error = all_.emplace_back();
  error.message = status.message();
  // The place may have the marks of a hint in it.
  const size_t behind = error.message.starts_with(place) ? place.size() : 0;
  error.hint = HintIn(error.message.substr(behind));
  error.key = std::move(key);
  error.place = std::move(place);
  FillPosition(error);
}

Status ConfigErrors::Together() const {
  if (all_.size() < 2) return first_;
  std::vector<ConfigError> by_line = all_;  // a table of TOML is in the order of its names
  // Behind the file what is elsewhere, which has no line.
  const auto line_of = [](const ConfigError& error) {
    return error.line > 0 ? error.line : std::numeric_limits<int64_t>::max();
  };
  std::stable_sort(by_line.begin(), by_line.end(), [&](const ConfigError& a, const ConfigError& b) {
    return line_of(a) < line_of(b);
  });
  std::string text = fmt::format("{} errors:", all_.size());
  for (const ConfigError& error : by_line) text += "\n  " + error.message;
  return Status(first_.code(), std::move(text));
}

void ConfigErrors::Add(const Status& status, const JobConfig& config) {
  if (status.ok()) return;
  if (all_.empty()) first_ = status;
  all_.push_back(ExplainError(status, config));
}

}  // namespace meshwright::config
