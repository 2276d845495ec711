#include "cli/scratch_check.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/os_error.h"

namespace meshwright::cli {

Status CheckScratchDir(const std::string& folder) {
  if (folder.empty()) return OkStatus();
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0) {
    if (errno == ENOENT) {
      return NotFound(fmt::format(
          "--scratch-dir {0}: there is no such folder; create it on the disk that jobs may use "
          "(mkdir -p {0}), or name one that is there",
          folder));
    }
    return OsError(errno, fmt::format("--scratch-dir {}", folder));
  }
  if (!S_ISDIR(found.st_mode)) {
    return InvalidArgument(fmt::format(
        "--scratch-dir {} is no folder; name one on the disk that jobs may use", folder));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return OsError(errno, fmt::format("--scratch-dir {}", folder));
  }
  return OkStatus();
}

}  // namespace meshwright::cli
