#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "base/log_lines.h"
#include "base/mutex.h"
#include "base/text.h"

namespace meshwright {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warn", "error"};
constexpr size_t kRotateBytes = size_t{100} << 20;
constexpr size_t kRotatedFiles = 5;

struct LogState {
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<bool> json{false};
  Mutex mutex;  // keeps lines in one order everywhere, too
  std::shared_ptr<spdlog::logger> writer MW_GUARDED_BY(mutex);
  LogSink sink MW_GUARDED_BY(mutex);
};

std::shared_ptr<spdlog::logger> MakeWriter(std::vector<spdlog::sink_ptr> sinks) {
  auto writer = std::make_shared<spdlog::logger>("meshwright", sinks.begin(), sinks.end());
  writer->set_pattern("%v");  // the line is formatted here: text and JSON for all sinks alike
  writer->set_level(spdlog::level::trace);
  writer->flush_on(spdlog::level::trace);
  return writer;
}

// Never destroyed: threads may log while static objects go away.
LogState& State() {
  static LogState* state = [] {
    auto* made = new LogState;
    const MutexLock lock(made->mutex);
    made->writer = MakeWriter({std::make_shared<spdlog::sinks::stderr_sink_mt>()});
    return made;
  }();
  return *state;
}

// "worker/agent.cc" -> room "worker". Paths are made relative to the source tree by the build; of
// an absolute one the folder of the file is taken.
std::string_view RoomOf(std::string_view path) {
  if (!path.empty() && path.front() == '/') {
    const size_t name = path.rfind('/');
    const size_t folder = name == 0 ? std::string_view::npos : path.rfind('/', name - 1);
    return folder == std::string_view::npos ? path : path.substr(folder + 1, name - folder - 1);
  }
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? "main" : path.substr(0, slash);
}

std::string Timestamp() {
  const auto now =
      std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const int64_t unix_ms = now.time_since_epoch().count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(unix_ms / 1000)), unix_ms % 1000);
}

std::string FormatLine(LogLevel level, std::string_view message, std::string_view file, int line) {
  const std::string_view room = RoomOf(file);
  const std::string_view name = LogLevelName(level);
  if (!State().json.load(std::memory_order_relaxed)) {
    return fmt::format("{} {:<5} {}: {}", Timestamp(), name, room, message);
  }
  return fmt::format(
      R"({{"time":"{}","level":"{}","component":"{}","source":"{}:{}","message":"{}"}})",
      Timestamp(), name, JsonEscape(room), JsonEscape(file), line, JsonEscape(message));
}

std::string FormatForeign(const LogSource& source, LogLevel level, std::string_view line) {
  const std::string of = source.job == 0 ? "" : fmt::format(" of job {}", source.job);
  if (!LogsJson()) return fmt::format("{}{} | {}", source.process, of, line);
  const std::string who =
      fmt::format(R"("process":"{}","job":{})", JsonEscape(source.process), source.job);
  if (line.starts_with(R"({"time":)")) return fmt::format("{{{},{}", who, line.substr(1));
  return fmt::format(R"({{{},"time":"{}","level":"{}","message":"{}"}})", who, Timestamp(),
                     LogLevelName(level), JsonEscape(line));
}

}  // namespace

std::string_view LogLevelName(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

Result<LogLevel> ParseLogLevel(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return Fail(InvalidArgument(
      fmt::format("log level '{}': choose one of {}", name, fmt::join(kLevelNames, ", "))));
}

Status InitLog(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.to_stderr) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (!options.file.empty()) {
    try {
      sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
          options.file, kRotateBytes, kRotatedFiles));
    } catch (const spdlog::spdlog_ex& error) {  // spdlog reports this only by throwing
      return InvalidArgument(fmt::format("log file '{}': {}", options.file, error.what()));
    }
  }
  LogState& state = State();
  const MutexLock lock(state.mutex);
  state.level.store(options.level);
  state.json.store(options.json);
  state.writer = MakeWriter(std::move(sinks));
  return OkStatus();
}

void SetLogSink(LogSink sink) {
  LogState& state = State();
  const MutexLock lock(state.mutex);
  state.sink = std::move(sink);
}

bool LogEnabled(LogLevel level) { return level >= State().level.load(std::memory_order_relaxed); }

LogLevel LowestLogLevel() { return State().level.load(std::memory_order_relaxed); }

bool LogsJson() { return State().json.load(std::memory_order_relaxed); }

void LogForeignLine(const LogSource& source, std::string_view line) {
  const bool known = UnixMsOfLine(line).has_value();
  const LogLevel level = known ? LevelOfLine(line) : LogLevel::kWarn;
  const std::string text = FormatForeign(source, level, line);
  LogState& state = State();
  const MutexLock lock(state.mutex);
  state.writer->log(spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
  if (state.sink) state.sink(level, text);
}

void Log(LogLevel level, std::string_view message, const char* file, int line) {
  if (!LogEnabled(level)) return;
  const std::string text = FormatLine(level, message, file, line);
  LogState& state = State();
  const MutexLock lock(state.mutex);
  state.writer->log(spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
  if (state.sink) state.sink(level, text);
}

}  // namespace meshwright
