#include "controller/state_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/os_error.h"
#include "base/text.h"

namespace meshwright::controller {
namespace {

// Jobs, data and weights are not for other users of the machine. A folder that is there already
// keeps its mode: somebody chose it.
Status MakeRoot(const std::string& root) {
  std::filesystem::path path(root);
  if (!path.has_filename()) path = path.parent_path();  // "state/"
  MW_TRY(MakeDirs(path.parent_path().string()));
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return OkStatus();
  return OsError(errno, fmt::format("make folder {}", root));
}

}  // namespace

Result<StateDir> StateDir::Open(const std::string& root) {
  if (root.empty()) {
    return Fail(InvalidArgument("the state directory is empty; pass --state-dir DIR"));
  }
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(root, error).string();
  if (error)
    return Fail(InvalidArgument(fmt::format("state directory '{}': {}", root, error.message())));
  MW_TRY(MakeRoot(absolute));
  const std::string lock_path = absolute + "/lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) return Fail(OsError(errno, lock_path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Fail(OsError(errno, lock_path));
    const auto holder = ReadFile(lock_path);
    const std::string who =
        holder.has_value() && !holder->empty() ? fmt::format(" (process {})", Trim(*holder)) : "";
    return Fail(FailedPrecondition(
        fmt::format("another controller{} holds the state directory {}; stop it, or choose another "
                    "--state-dir",
                    who, absolute)));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Fail(OsError(errno, lock_path));
  }
  StateDir dir(absolute, std::move(lock));
  MW_TRY(MakeDirs(dir.blobs_dir()));
  MW_TRY(MakeDirs(dir.jobs_dir()));
  return dir;
}

int64_t StateDir::LastJob() const {
  int64_t last = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(jobs_dir(), error)) {
    const std::string name = entry.path().filename().string();
    int64_t job = 0;
    const auto [at, failed] = std::from_chars(name.data(), name.data() + name.size(), job);
    if (failed == std::errc() && at == name.data() + name.size()) last = std::max(last, job);
  }
  return last;
}

}  // namespace meshwright::controller
