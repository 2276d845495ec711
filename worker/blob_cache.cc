#include "worker/blob_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/file_io.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/os_error.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "proto/job_codec.h"

namespace meshwright::worker {
namespace {

constexpr const char* kFolderPrefix = "meshwright-worker";
constexpr const char* kLockName = "lock";
constexpr const char* kPartMark = ".part-";
constexpr std::chrono::milliseconds kAskCancelled{50};

Status Aborted() { return Cancelled("the job was aborted while it was loading"); }

// A file that goes with the object, unless it was renamed.
struct PartFile {
  PartFile(std::string name, int fd) : path(std::move(name)), file(fd) {}
  ~PartFile() { ::unlink(path.c_str()); }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string path;
  const UniqueFd file;
};

// A new file, locked by us.
Result<std::unique_ptr<PartFile>> MakePart(const std::string& path) {
  while (true) {
    std::string name = path + kPartMark + "XXXXXX";
    const int fd = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) return Fail(OsError(errno, fmt::format("create {}", name)));
    auto part = std::make_unique<PartFile>(name, fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) continue;
      return Fail(OsError(errno, fmt::format("lock {}", name)));
    }
    struct stat info {};
    if (::fstat(fd, &info) != 0) return Fail(OsError(errno, fmt::format("stat {}", name)));
    if (info.st_nlink == 0) continue;  // a cleaner was faster than the lock: the file is no more
    if (::fchmod(fd, 0644) != 0) return Fail(OsError(errno, fmt::format("chmod {}", name)));
    return part;
  }
}

// Removes the parts that no living process writes.
Status RemoveParts(const std::string& dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string path = entry.path().string();
    if (entry.path().filename().string().find(kPartMark) == std::string::npos) continue;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
  if (!error) return OkStatus();
  return OsError(error.value(), fmt::format("list {}", dir));
}

// A lock appears only when it is held: a folder with a lock that nobody holds has lost its worker.
Result<UniqueFd> MakeLock(const std::string& dir) {
  const std::string made = dir + "/lock.new";
  UniqueFd fd(::open(made.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return Fail(OsError(errno, fmt::format("create {}", made)));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Fail(OsError(errno, fmt::format("lock {}", made)));
  }
  const std::string lock = dir + "/" + kLockName;
  if (std::rename(made.c_str(), lock.c_str()) != 0) {
    return Fail(OsError(errno, fmt::format("rename {}", made)));
  }
  return fd;
}

// The temporary folders of this user's workers that were killed: programs and copies of data.
void RemoveFoldersOfTheDead(const std::string& own) {
  const std::filesystem::path path(own);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(std::string(kFolderPrefix) + "-", 0) != 0 || entry.path() == path) continue;
    struct stat info {};
    const bool ours = ::lstat(entry.path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == ::geteuid();
    if (!ours) continue;
    const std::string lock = entry.path().string() + "/" + kLockName;
    const UniqueFd fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    const Status removed = RemoveAll(entry.path().string());
    if (removed.ok()) {
      LogInfo(fmt::format("removed {}, which a killed worker left", entry.path().string()));
    } else {
      LogWarn(fmt::format("a killed worker left {}: {}", entry.path().string(), removed.message()));
    }
  }
}

}  // namespace

Result<std::unique_ptr<BlobCache>> BlobCache::Open(const std::string& dir, ControllerLink* link) {
  if (dir.empty()) {
    MW_ASSIGN_OR_RETURN(TempDir temporary, TempDir::Make(kFolderPrefix));
    RemoveFoldersOfTheDead(temporary.path());
    std::unique_ptr<BlobCache> cache(new BlobCache(temporary.path(), link));
    cache->temporary_ = std::move(temporary);
    MW_TRY(cache->MakeFolder());
    return cache;
  }
  MW_TRY(MakeDirs(dir));
  MW_TRY(RemoveParts(dir));
  return std::unique_ptr<BlobCache>(new BlobCache(dir, link));
}

// Cleaners of temporary folders take one that has not been used for days, however alive its worker.
Status BlobCache::MakeFolder() {
  const MutexLock lock(mutex_);
  if (!temporary_) return MakeDirs(dir_);
  if (lock_.valid() && FileExists(dir_ + "/" + kLockName)) return OkStatus();
  if (::mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST) {
    return OsError(errno, fmt::format("make folder {}", dir_));
  }
  MW_ASSIGN_OR_RETURN(lock_, MakeLock(dir_));
  return OkStatus();
}

// The job that comes to know of it is not to blame: another worker may have room.
Status BlobCache::DiskFailed(Status failure, int64_t wanted_bytes) {
  const MutexLock lock(mutex_);
  disk_ = failure;
  wanted_bytes_ = wanted_bytes;
  return failure.WithBlame(Blame::kInfra);
}

Status BlobCache::DiskStatus() const {
  const MutexLock lock(mutex_);
  return disk_;
}

Status BlobCache::ProbeDisk() {
  constexpr size_t kProbeBytes = 64 << 10;
  int64_t wanted_bytes = 0;
  {
    const MutexLock lock(mutex_);
    if (disk_.ok()) return OkStatus();
    wanted_bytes = wanted_bytes_;
  }
  const auto probe = [&]() -> Status {
    MW_TRY(MakeFolder());
    MW_ASSIGN_OR_RETURN(const auto part, MakePart(dir_ + "/probe"));
    MW_TRY(WriteAll(part->file.get(), std::string(kProbeBytes, 'x'), part->path));
    if (::fsync(part->file.get()) != 0) return OsError(errno, fmt::format("sync {}", part->path));
    std::error_code error;
    const auto room = std::filesystem::space(dir_, error).available;
    if (error || room >= static_cast<uint64_t>(wanted_bytes)) return OkStatus();
    return ResourceExhausted(
        fmt::format("{} has room for {} bytes, {} are needed", dir_, room, wanted_bytes));
  };
  const Status status = probe();
  const MutexLock lock(mutex_);
  disk_ = status;
  return status;
}

Result<std::string> BlobCache::Path(const ir::BlobRef& blob,
                                    const std::function<bool()>& cancelled) {
  if (!proto::IsSha256Hex(blob.sha256)) {
    return Fail(InvalidArgument(fmt::format("blob '{}' has no valid hash", blob.name)));
  }
  const std::string path = dir_ + "/" + blob.sha256;
  MutexLock lock(mutex_);
  while (in_flight_.contains(blob.sha256)) {
    if (cancelled()) return Fail(Aborted());
    (void)landed_.WaitFor(mutex_, kAskCancelled);
  }
  const bool verified = verified_.contains(blob.sha256);
  in_flight_.insert(blob.sha256);
  lock.Unlock();
  const Status status =
      Guarded("fetching a blob", [&] { return Ensure(blob, path, verified, cancelled); });
  lock.Lock();
  in_flight_.erase(blob.sha256);
  if (status.ok()) verified_.insert(blob.sha256);
  landed_.NotifyAll();
  MW_TRY(status);
  return path;
}

Status BlobCache::Ensure(const ir::BlobRef& blob, const std::string& path, bool verified,
                         const std::function<bool()>& cancelled) {
  // Temporary folders get cleaned by others: a copy that was deleted is fetched again.
  if (FileExists(path)) {
    if (verified) return OkStatus();
    // A file of an earlier life may be damaged: its name is a claim until it was hashed once.
    MW_ASSIGN_OR_RETURN(const std::string found, Sha256File(path));
    if (found == blob.sha256) return OkStatus();
  }
  return Fetch(blob, path, cancelled);
}

Status BlobCache::Fetch(const ir::BlobRef& blob, const std::string& path,
                        const std::function<bool()>& cancelled) {
  if (const Status made = MakeFolder(); !made.ok()) return DiskFailed(made, 0);
  auto opened = MakePart(path);
  if (!opened.has_value()) return DiskFailed(opened.error(), 0);
  const std::unique_ptr<PartFile> part = std::move(*opened);
  constexpr int kAttempts = 5;
  Sha256 hash;
  int64_t written = 0;
  Status status = Aborted();
  for (int attempt = 0; attempt < kAttempts && !cancelled(); ++attempt) {
    // A broken transfer goes on where it stopped.
    const auto sink = [&](std::string_view chunk) -> Status {
      if (const Status wrote = WriteAll(part->file.get(), chunk, part->path); !wrote.ok()) {
        return DiskFailed(wrote, blob.size_bytes);
      }
      hash.Update(chunk);
      written += static_cast<int64_t>(chunk.size());
      return OkStatus();
    };
    status = link_->FetchBlob(blob.sha256, written, cancelled, sink);
    if (status.code() != StatusCode::kUnavailable) break;
  }
  if (!status.ok()) return status.WithContext(fmt::format("fetching '{}'", blob.name));
  const std::string found = hash.HexDigest();
  if (found != blob.sha256 || written != blob.size_bytes) {
    return DataLoss(fmt::format("'{}' arrived with {} bytes and hash {}, expected {} and {}",
                                blob.name, written, found, blob.size_bytes, blob.sha256));
  }
  if (std::rename(part->path.c_str(), path.c_str()) != 0) {
    return OsError(errno, fmt::format("rename {}", part->path));
  }
  return OkStatus();
}

}  // namespace meshwright::worker
