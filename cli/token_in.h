// The token in a file that an option of a daemon names.
//
// Thread rule: reads a file.
#pragma once

#include <string>

#include "base/live_token.h"
#include "base/result.h"

namespace meshwright::cli {

// None without a file. One that is written to it later counts (base/live_token.h). Errors:
// kInvalidArgument: it is empty, naming `option` and what to do; those of ReadSecretFile.
Result<LiveToken> TokenIn(const char* option, const std::string& path);

}  // namespace meshwright::cli
