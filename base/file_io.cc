#include "base/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/os_error.h"
#include "base/unique_fd.h"

namespace meshwright {

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      return OsError(errno, fmt::format("write {} ({} bytes left)", path, bytes.size()));
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return OkStatus();
}

Status SyncFolder(const std::string& folder) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return OsError(errno, fmt::format("open {}", folder));
  // Some file systems cannot sync a folder and need not.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return OsError(errno, "fsync " + folder);
  return OkStatus();
}

}  // namespace meshwright
