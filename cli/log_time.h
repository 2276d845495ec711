// "--since": an age or a time.
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::cli {

// "90s", "10m", "2h", "1d" before now, or "2026-03-01T12:00:00Z"; "" gives 0. Errors:
// kInvalidArgument naming the forms.
Result<int64_t> SinceUnixMs(const std::string& text, int64_t now_unix_ms);

}  // namespace meshwright::cli
