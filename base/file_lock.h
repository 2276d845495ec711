// A lock between processes: held by an open file (flock(2)), so it ends with its holder, however
// that ends. The file itself stays.
//
// Thread rule: thread-safe; two calls of one process exclude each other, too.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright {

// Creates the file for its owner alone if there is none; a link is not followed. The lock is held
// until the descriptor is closed. Errors: kDeadlineExceeded when another has it for longer than
// `timeout_ms`; those of opening, naming the path.
Result<UniqueFd> LockFile(const std::string& path, int64_t timeout_ms);

}  // namespace meshwright
