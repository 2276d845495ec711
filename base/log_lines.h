// What a line of the log says of itself, read back: when, how grave, of which job. Both forms of
// base/log.h are known, text and JSON, also behind the mark of another process.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/log.h"

namespace meshwright {

// Milliseconds since 1970-01-01 UTC; none: the line does not begin with a time.
std::optional<int64_t> UnixMsOfLine(std::string_view line);
// "2026-03-01T12:00:00Z", with or without milliseconds, and nothing else.
std::optional<int64_t> ParseTimestamp(std::string_view text);
// kInfo where it says nothing.
LogLevel LevelOfLine(std::string_view line);
// The job that the process works for which wrote it; 0: it says none.
int64_t JobOfLine(std::string_view line);

}  // namespace meshwright
