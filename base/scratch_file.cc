#include "base/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/os_error.h"

namespace meshwright {
namespace {

constexpr const char* kAdvice =
    "free some of that disk, name a folder of another one (worker --scratch-dir), or keep less on "
    "it";

Status Failed(int error_number, const std::string& what) {
  const Status failure = OsError(error_number, what);
  return Status(failure.code(), fmt::format("{}; {}", failure.message(), kAdvice));
}

Result<UniqueFd> OpenUnnamed(const std::string& folder) {
  UniqueFd fd(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid()) return fd;
  // Some file systems have no files without names.
  static std::atomic<int64_t> count{0};
  const std::string path =
      fmt::format("{}/meshwright-scratch-{}-{}", folder, getpid(), count.fetch_add(1));
  fd = UniqueFd(open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid()) return Fail(Failed(errno, "open " + path));
  if (unlink(path.c_str()) != 0) return Fail(Failed(errno, "unlink " + path));
  return fd;
}

}  // namespace

Result<ScratchFile> ScratchFile::Make(const std::string& folder, int64_t bytes) {
  MW_CHECK(bytes > 0) << "a scratch file of " << bytes << " bytes";
  MW_TRY(MakeDirs(folder));
  MW_ASSIGN_OR_RETURN(UniqueFd fd, OpenUnnamed(folder));
  const int error_number = posix_fallocate(fd.get(), 0, bytes);
  if (error_number != 0) {
    return Fail(Failed(error_number, fmt::format("take {} bytes of {}", bytes, folder)));
  }
  return ScratchFile(std::move(fd), folder, bytes);
}

Status ScratchFile::Read(int64_t offset, std::span<std::byte> into) const {
  MW_CHECK(offset >= 0 && offset + static_cast<int64_t>(into.size()) <= bytes_)
      << into.size() << " bytes at " << offset << " of " << bytes_;
  while (!into.empty()) {
    const ssize_t read = pread(fd_.get(), into.data(), into.size(), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Failed(errno, fmt::format("read {} in {}", offset, folder_));
    if (read == 0) return DataLoss(fmt::format("the scratch file in {} was cut", folder_));
    into = into.subspan(static_cast<size_t>(read));
    offset += read;
  }
  return OkStatus();
}

Status ScratchFile::Write(int64_t offset, std::span<const std::byte> from) const {
  MW_CHECK(offset >= 0 && offset + static_cast<int64_t>(from.size()) <= bytes_)
      << from.size() << " bytes at " << offset << " of " << bytes_;
  while (!from.empty()) {
    const ssize_t wrote = pwrite(fd_.get(), from.data(), from.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Failed(errno, fmt::format("write {} in {}", offset, folder_));
    from = from.subspan(static_cast<size_t>(wrote));
    offset += wrote;
  }
  return OkStatus();
}

}  // namespace meshwright
