// The token in a file that an option of a daemon names.
//
// Thread rule: reads a file.
#pragma once

#include <string>

#include "base/result.h"

namespace meshwright::cli {

// "" without a file. Errors: kInvalidArgument: it is empty, naming `option` and what to do; those
// of ReadSecretFile.
Result<std::string> TokenIn(const char* option, const std::string& path);

}  // namespace meshwright::cli
