#include "worker/blob_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/os_error.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "proto/job_codec.h"

namespace meshwright::worker {
namespace {

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return OsError(errno, fmt::format("write {}", path));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<BlobCache>> BlobCache::Open(const std::string& dir, ControllerLink* link) {
  if (dir.empty()) {
    MW_ASSIGN_OR_RETURN(TempDir temporary, TempDir::Make("meshwright-worker"));
    std::unique_ptr<BlobCache> cache(new BlobCache(temporary.path(), link));
    cache->temporary_ = std::move(temporary);
    return cache;
  }
  MW_TRY(MakeDirs(dir));
  return std::unique_ptr<BlobCache>(new BlobCache(dir, link));
}

Result<std::string> BlobCache::Path(const ir::BlobRef& blob,
                                    const std::function<bool()>& cancelled) {
  if (!proto::IsSha256Hex(blob.sha256)) {
    return Fail(InvalidArgument(fmt::format("blob '{}' has no valid hash", blob.name)));
  }
  const std::string path = dir_ + "/" + blob.sha256;
  std::scoped_lock lock(mutex_);
  if (!verified_.contains(blob.sha256)) {
    // A file of an earlier life may be damaged: its name is a claim until it was hashed once.
    bool good = false;
    if (FileExists(path)) {
      MW_ASSIGN_OR_RETURN(std::string found, Sha256File(path));
      good = found == blob.sha256;
    }
    if (!good) MW_TRY(Fetch(blob, path, cancelled));
    verified_.insert(blob.sha256);
  }
  return path;
}

Result<std::string> BlobCache::Read(const ir::BlobRef& blob,
                                    const std::function<bool()>& cancelled) {
  MW_ASSIGN_OR_RETURN(std::string path, Path(blob, cancelled));
  return ReadFile(path);
}

Status BlobCache::Fetch(const ir::BlobRef& blob, const std::string& path,
                        const std::function<bool()>& cancelled) {
  const std::string temporary = fmt::format("{}.part-{}", path, ::getpid());
  struct Remover {
    const std::string& path;
    ~Remover() { ::unlink(path.c_str()); }
  } remover{temporary};
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return OsError(errno, temporary);
  constexpr int kAttempts = 5;
  Sha256 hash;
  int64_t written = 0;
  Status status = Cancelled("the job was aborted while it was loading");
  for (int attempt = 0; attempt < kAttempts && !cancelled(); ++attempt) {
    // A broken transfer goes on where it stopped.
    status = link_->FetchBlob(blob.sha256, written, [&](std::string_view chunk) -> Status {
      if (cancelled()) return Cancelled("the job was aborted while it was loading");
      MW_TRY(WriteAll(fd.get(), chunk, temporary));
      hash.Update(chunk);
      written += static_cast<int64_t>(chunk.size());
      return OkStatus();
    });
    if (status.code() != StatusCode::kUnavailable) break;
  }
  if (!status.ok()) return status.WithContext(fmt::format("fetching '{}'", blob.name));
  const std::string found = hash.HexDigest();
  if (found != blob.sha256 || written != blob.size_bytes) {
    return DataLoss(fmt::format("'{}' arrived with {} bytes and hash {}, expected {} and {}",
                                blob.name, written, found, blob.size_bytes, blob.sha256));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return OsError(errno, fmt::format("rename {}", temporary));
  }
  return OkStatus();
}

}  // namespace meshwright::worker
