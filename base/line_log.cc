#include "base/line_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log_lines.h"
#include "base/sha256.h"
#include "base/text.h"

namespace meshwright {
namespace {

// Of the lines of a query, those that are looked at for one answer.
constexpr size_t kMostLookedAt = size_t{16} << 20;

// "w0.000000000042.log" -> 42.
std::optional<int64_t> PositionOf(const std::string& file, const std::string& name) {
  if (!file.starts_with(name + ".") || !file.ends_with(".log")) return std::nullopt;
  const size_t begin = name.size() + 1;
  if (file.size() < begin + 5) return std::nullopt;
  return ParseInt(file.substr(begin, file.size() - 4 - begin));
}

// Calls take(line with its end, position) until it says false; the last line may have no end where
// a process died while it wrote.
template <typename Take>
bool EachLine(std::string_view text, int64_t position, Take take) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t bytes = end == std::string_view::npos ? text.size() : end + 1;
    if (!take(text.substr(0, bytes), position)) return false;
    position += static_cast<int64_t>(bytes);
    text.remove_prefix(bytes);
  }
  return true;
}

std::string_view WithoutEnd(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  return line;
}

}  // namespace

std::string SafeFileName(std::string_view name) {
  constexpr size_t kMostBytes = 120;
  constexpr size_t kCutBytes = 80;
  constexpr size_t kHashBytes = 16;
  std::string safe;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !safe.empty());
    safe += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  if (safe.size() <= kMostBytes) return safe;
  return safe.substr(0, kCutBytes) + "-" + Sha256Hex(name).substr(0, kHashBytes);
}

Result<std::unique_ptr<LineLog>> LineLog::Open(LineLogOptions options) {
  std::unique_ptr<LineLog> log(new LineLog(std::move(options)));
  MW_TRY(log->TakeUp());
  return log;
}

Status LineLog::TakeUp() {
  const MutexLock lock(mutex_);
  if (!options_.folder.empty()) {
    MW_TRY(MakeDirs(options_.folder));
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
      const auto position = PositionOf(entry.path().filename().string(), options_.name);
      if (!position) continue;
      MW_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(entry.path().string()));
      segments_.push_back({*position, bytes, entry.path().string(), {}});
    }
    std::sort(segments_.begin(), segments_.end(),
              [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  }
  if (segments_.empty()) Begin(0);
  MW_TRY(DropOld());
  // A line that its writer could not end would join the next one.
  MW_ASSIGN_OR_RETURN(const std::string last, TextOf(segments_.back()));
  if (!last.empty() && last.back() != '\n') {
    MW_TRY(AppendFile(segments_.back().path, "\n"));
    ++segments_.back().bytes;
  }
  return OkStatus();
}

void LineLog::Begin(int64_t position) {
  Segment& segment = segments_.emplace_back();
  segment.begin = position;
  if (options_.folder.empty()) return;
  segment.path = fmt::format("{}/{}.{:015}.log", options_.folder, options_.name, position);
}

Status LineLog::DropOld() {
  while (segments_.size() > std::max<size_t>(options_.segments, 1)) {
    if (!segments_.front().path.empty()) MW_TRY(RemoveAll(segments_.front().path));
    segments_.pop_front();
  }
  return OkStatus();
}

int64_t LineLog::EndLocked() const { return segments_.back().begin + segments_.back().bytes; }

int64_t LineLog::end() const {
  const MutexLock lock(mutex_);
  return EndLocked();
}

int64_t LineLog::bytes() const {
  const MutexLock lock(mutex_);
  int64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.bytes;
  return bytes;
}

Status LineLog::Add(std::string_view lines) {
  std::string text(lines);
  if (text.empty() || text.back() != '\n') text.push_back('\n');
  const MutexLock lock(mutex_);
  if (segments_.back().bytes > 0 &&
      static_cast<size_t>(segments_.back().bytes) + text.size() > options_.segment_bytes) {
    Begin(EndLocked());
    MW_TRY(DropOld());
  }
  Segment& last = segments_.back();
  if (last.path.empty()) {
    last.text += text;
  } else {
    MW_TRY(AppendFile(last.path, text));
  }
  last.bytes += static_cast<int64_t>(text.size());
  return OkStatus();
}

Result<std::string> LineLog::TextOf(const Segment& segment) {
  if (segment.path.empty()) return segment.text;
  if (segment.bytes == 0) return std::string();
  MW_ASSIGN_OR_RETURN(std::string text, ReadFile(segment.path));
  text.resize(std::min(text.size(), static_cast<size_t>(segment.bytes)));
  return text;
}

// Of the last lines that are wanted, the first.
Result<int64_t> LineLog::StartOf(const LineQuery& query) const {
  const int64_t first = segments_.front().begin;
  if (query.from >= 0) return std::clamp(query.from, first, EndLocked());
  if (query.lines <= 0 && query.since_unix_ms <= 0) return first;
  std::deque<int64_t> wanted;
  int64_t unix_ms = 0;  // of a line without one: that of the line before
  for (const Segment& segment : segments_) {
    MW_ASSIGN_OR_RETURN(const std::string text, TextOf(segment));
    EachLine(text, segment.begin, [&](std::string_view line, int64_t position) {
      unix_ms = UnixMsOfLine(line).value_or(unix_ms);
      if (query.job != 0 && JobOfLine(line) != query.job) return true;
      if (unix_ms < query.since_unix_ms) return true;
      wanted.push_back(position);
      if (query.lines > 0 && wanted.size() > static_cast<size_t>(query.lines)) wanted.pop_front();
      return query.lines > 0;
    });
    if (query.lines <= 0 && !wanted.empty()) break;
  }
  return wanted.empty() ? EndLocked() : wanted.front();
}

Result<LinePiece> LineLog::Read(const LineQuery& query) const {
  const MutexLock lock(mutex_);
  MW_ASSIGN_OR_RETURN(const int64_t start, StartOf(query));
  LinePiece piece;
  piece.next = start;
  size_t looked_at = 0;
  for (const Segment& segment : segments_) {
    if (segment.begin + segment.bytes <= start) continue;
    MW_ASSIGN_OR_RETURN(const std::string text, TextOf(segment));
    const auto skip = static_cast<size_t>(std::max<int64_t>(start - segment.begin, 0));
    if (skip > text.size()) continue;
    const bool all =
        EachLine(std::string_view(text).substr(skip), segment.begin + static_cast<int64_t>(skip),
                 [&](std::string_view line, int64_t position) {
                   const bool wanted = query.job == 0 || JobOfLine(WithoutEnd(line)) == query.job;
                   const bool full = piece.text.size() + line.size() > query.most_bytes;
                   if ((wanted && full && !piece.text.empty()) || looked_at > kMostLookedAt)
                     return false;
                   if (wanted) piece.text += line;
                   looked_at += line.size();
                   piece.next = position + static_cast<int64_t>(line.size());
                   return true;
                 });
    if (!all) return piece;
  }
  piece.end = true;
  return piece;
}

}  // namespace meshwright
