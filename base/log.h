// Log: what operators read. Levels debug, info, warn, error; one line per event on stderr, and in a
// file when asked.
//
//   LogWarn(fmt::format("worker {} missed {} heartbeats", id, missed));
//   2026-03-01T12:00:00.123Z warn  controller: worker 3 missed 4 heartbeats
//
// The component is the room of the calling file. The step path does not log.
//
// Thread rule: thread-safe; lines are never mixed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };

// "debug", "info", "warn", "error".
std::string_view LogLevelName(LogLevel level);
// Errors: kInvalidArgument listing the names.
Result<LogLevel> ParseLogLevel(std::string_view name);

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  // One JSON object per line (time, level, component, source, message) instead of text.
  bool json = false;
  // Also append to this file; empty: stderr only. Rotated at 100 MiB, five files kept.
  std::string file{};
  // False: nothing on stderr (a file or a sink is then the only place).
  bool to_stderr = true;
};

// Replaces the previous set-up; without it: text, info, stderr.
// Errors: kInvalidArgument when the file cannot be opened for appending.
Status InitLog(const LogOptions& options);

// Also hands every line that passes the level, without line end, to `sink` (worker's tail of recent
// lines, tests). Called on the logging thread, one at a time; it must not log. Null removes it;
// when this returns, the old sink is not running any more.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;
void SetLogSink(LogSink sink);

bool LogEnabled(LogLevel level);
// The lowest level of which lines are written.
LogLevel LowestLogLevel();
// Whether lines are JSON objects.
bool LogsJson();

// Another process that logs in this one's place.
struct LogSource {
  std::string process;  // "executor 4711"
  int64_t job = 0;      // that it works for; 0: none
};
// A line of it, whatever its level: "executor 4711 of job 3 | <line>", or a JSON object that says
// the same. The sink hears it, too. What is not in the form of this log's lines is a warning: it is
// what a library or the kernel had to say of a process that ends.
void LogForeignLine(const LogSource& source, std::string_view line);

void Log(LogLevel level, std::string_view message, const char* file = __builtin_FILE(),
         int line = __builtin_LINE());
inline void LogDebug(std::string_view message, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  Log(LogLevel::kDebug, message, file, line);
}
inline void LogInfo(std::string_view message, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  Log(LogLevel::kInfo, message, file, line);
}
inline void LogWarn(std::string_view message, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  Log(LogLevel::kWarn, message, file, line);
}
inline void LogError(std::string_view message, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  Log(LogLevel::kError, message, file, line);
}

}  // namespace meshwright
