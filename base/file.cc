#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file_io.h"
#include "base/os_error.h"
#include "base/unique_fd.h"

namespace meshwright {
namespace {

Result<UniqueFd> OpenFile(const std::string& path, int flags, unsigned mode, const char* verb) {
  UniqueFd file(open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!file.valid()) return Fail(OsError(errno, fmt::format("{} {}", verb, path)));
  return file;
}

Result<struct stat> StatFd(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return Fail(OsError(errno, fmt::format("stat {}", path)));
  return info;
}

// Errors name `path`, which the file is to become.
Status WriteDurably(const std::string& temporary, const std::string& path, std::string_view bytes,
                    unsigned mode) {
  UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid()) return OsError(errno, "create " + path);
  MW_TRY(WriteAll(file.get(), bytes, path));
  if (fsync(file.get()) != 0) return OsError(errno, "fsync " + path);
  if (close(file.Release()) != 0) return OsError(errno, "close " + path);
  return OkStatus();
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(path, O_RDONLY, 0, "read"));
  MW_ASSIGN_OR_RETURN(const struct stat info, StatFd(file.get(), path));
  if (S_ISDIR(info.st_mode)) return Fail(OsError(EISDIR, "read " + path));
  // Files under /proc say 0 bytes, and files may grow: the size is only a hint.
  std::string bytes(static_cast<size_t>(info.st_size) + 4096, '\0');
  size_t filled = 0;
  for (;;) {
    if (filled == bytes.size()) bytes.resize(bytes.size() * 2);
    const ssize_t got = read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(OsError(errno, "read " + path));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

Status WriteFileAtomic(const std::string& path, std::string_view bytes, unsigned mode) {
  static std::atomic<int64_t> counter{0};
  const std::string temporary = fmt::format("{}.tmp-{}-{}", path, getpid(), counter.fetch_add(1));
  Status status = WriteDurably(temporary, path, bytes, mode);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = OsError(errno, fmt::format("rename {} to {}", temporary, path));
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SyncFolder(folder.empty() ? "." : folder);
}

Status AppendFile(const std::string& path, std::string_view bytes) {
  MW_ASSIGN_OR_RETURN(UniqueFd file,
                      OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0644, "append to"));
  MW_TRY(WriteAll(file.get(), bytes, path));
  if (close(file.Release()) != 0) return OsError(errno, "close " + path);
  return OkStatus();
}

Result<int64_t> FileSize(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return Fail(OsError(errno, "stat " + path));
  return int64_t{info.st_size};
}

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Status MakeDirs(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return OsError(error.value(), "make folder " + path);
  return OkStatus();
}

Status RemoveAll(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return OsError(error.value(), "remove " + path);
  return OkStatus();
}

Result<MemoryMappedFile> MemoryMappedFile::Open(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(path, O_RDONLY, 0, "map"));
  MW_ASSIGN_OR_RETURN(const struct stat info, StatFd(file.get(), path));
  if (S_ISDIR(info.st_mode)) return Fail(OsError(EISDIR, "map " + path));
  if (info.st_size == 0) return MemoryMappedFile(nullptr, 0);
  void* data =
      mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return Fail(OsError(errno, "map " + path));
  return MemoryMappedFile(static_cast<const std::byte*>(data), int64_t{info.st_size});
}

MemoryMappedFile::~MemoryMappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(bytes_));
}

MemoryMappedFile::MemoryMappedFile(MemoryMappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryMappedFile& MemoryMappedFile::operator=(MemoryMappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<TempDir> TempDir::Make(const std::string& prefix) {
  const char* root = std::getenv("TMPDIR");
  std::string path =
      fmt::format("{}/{}-XXXXXX", root != nullptr && *root != '\0' ? root : "/tmp", prefix);
  if (mkdtemp(path.data()) == nullptr) return Fail(OsError(errno, "make folder " + path));
  return TempDir(std::move(path));
}

TempDir::~TempDir() {
  if (!path_.empty()) (void)RemoveAll(path_);
}

TempDir::TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

std::string TempDir::File(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

std::string TempDir::Keep() { return std::exchange(path_, {}); }

}  // namespace meshwright
