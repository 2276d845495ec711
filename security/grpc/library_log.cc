#include "security/grpc/library_log.h"

#include <fmt/format.h>
#include <grpc/support/log.h>

#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace meshwright::security {
namespace {

bool IsWanted() {
  static const bool wanted = std::getenv("GRPC_VERBOSITY") != nullptr;
  return wanted;
}

LogLevel LevelOf(std::string_view message) {
  if (message.starts_with("assertion failed")) return LogLevel::kError;
  return IsWanted() ? LogLevel::kInfo : LogLevel::kDebug;
}

void TakeLine(gpr_log_func_args* line) {
  const std::string_view message = line->message;
  const LogLevel level = LevelOf(message);
  if (!LogEnabled(level)) return;
  const std::string_view file = line->file;
  Log(level, fmt::format("gRPC, {}:{}: {}", file.substr(file.rfind('/') + 1), line->line, message));
}

}  // namespace

void TakeGrpcLog() {
  static const bool taken = [] {
    (void)IsWanted();
    gpr_set_log_function(TakeLine);
    return true;
  }();
  (void)taken;
}

}  // namespace meshwright::security
