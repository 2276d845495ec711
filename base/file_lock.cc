#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>

#include <cerrno>

#include "base/clock.h"
#include "base/os_error.h"

namespace meshwright {

Result<UniqueFd> LockFile(const std::string& path, int64_t timeout_ms) {
  constexpr int kBetweenTriesMs = 20;  // a lock has no event
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Fail(OsError(errno, fmt::format("cannot write {}", path)));
  const Deadline deadline = Deadline::After(timeout_ms);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Fail(OsError(errno, path));
    if (deadline.remaining_ms() == 0) {
      return Fail(DeadlineExceeded(
          fmt::format("another process holds {} for longer than {} ms", path, timeout_ms)));
    }
    ::poll(nullptr, 0, kBetweenTriesMs);
  }
  return fd;
}

}  // namespace meshwright
