#include "base/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/os_error.h"
#include "base/unique_fd.h"

namespace meshwright {
namespace {

constexpr mode_t kOthers = 077;
constexpr mode_t kOthersOfRoot = 037;  // its group may read
constexpr mode_t kOthersWrite = 022;

Status CheckSecretMode(const struct stat& found, const std::string& path) {
  const uid_t self = ::geteuid();
  if (found.st_uid != self && found.st_uid != 0) {
    return PermissionDenied(fmt::format(
        "{} belongs to user {}, and this process runs as user {}: a secret must belong to the user "
        "who uses it; chown it, or copy it",
        path, found.st_uid, self));
  }
  const mode_t refused = found.st_uid == 0 && self != 0 ? kOthersOfRoot : kOthers;
  if ((found.st_mode & refused) == 0) return OkStatus();
  return PermissionDenied(
      fmt::format("{} has mode {:04o}: others on this machine can read it; chmod 600 {}", path,
                  found.st_mode & 07777U, path));
}

}  // namespace

Result<std::string> ReadSecretFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Fail(OsError(errno, path));
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) return Fail(OsError(errno, path));
  if (S_ISDIR(found.st_mode)) {
    return Fail(InvalidArgument(path + " is a folder; a file is meant"));
  }
  // What comes through a pipe has no place where others could read it: <(command) is fine.
  if (S_ISREG(found.st_mode)) MW_TRY(CheckSecretMode(found, path));
  std::string bytes;
  char piece[4096];
  while (true) {
    const ssize_t count = ::read(fd.get(), piece, sizeof(piece));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Fail(OsError(errno, path));
    if (count == 0) return bytes;
    bytes.append(piece, static_cast<size_t>(count));
    if (bytes.size() > (size_t{1} << 20)) {
      return Fail(
          InvalidArgument(path + " has more than 1 MiB: it is no token, key or certificate"));
    }
  }
}

Status WriteSecretFile(const std::string& path, std::string_view bytes) {
  return WriteFileAtomic(path, bytes, 0600);
}

Status CheckSecretDir(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return OsError(errno, path);
  if (!S_ISDIR(found.st_mode)) return InvalidArgument(path + " is no folder");
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return PermissionDenied(fmt::format(
        "{} belongs to user {}, who could replace what is in it; this process runs as user {}",
        path, found.st_uid, ::geteuid()));
  }
  if ((found.st_mode & kOthersWrite) == 0) return OkStatus();
  return PermissionDenied(
      fmt::format("{} has mode {:04o}: others on this machine can replace what is in it; chmod "
                  "go-w {}",
                  path, found.st_mode & 07777U, path));
}

Status MakeSecretDir(const std::string& path) {
  if (FileExists(path)) return CheckSecretDir(path);
  if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0) {
    MW_TRY(MakeDirs(path.substr(0, slash)));
  }
  if (::mkdir(path.c_str(), 0700) == 0) return OkStatus();
  if (errno != EEXIST) return OsError(errno, path);
  return CheckSecretDir(path);
}

}  // namespace meshwright
