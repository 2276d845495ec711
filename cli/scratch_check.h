// What of --scratch-dir can be known before a job needs it.
#pragma once

#include <string>

#include "base/status.h"

namespace meshwright::cli {

// OK where nothing is given. Errors: kNotFound, kInvalidArgument (no folder), kPermissionDenied,
// naming the option and the path.
Status CheckScratchDir(const std::string& folder);

}  // namespace meshwright::cli
