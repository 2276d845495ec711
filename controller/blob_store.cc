#include "controller/blob_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/os_error.h"
#include "base/text.h"
#include "proto/job_codec.h"

namespace meshwright::controller {
namespace {

constexpr const char* kTemporaryMark = ".part-";
constexpr const char* kDamagedMark = ".damaged";
constexpr int64_t kTouchMs = 60'000;       // uses that are closer than this are one
constexpr int64_t kLeastIdleMs = 600'000;  // a job may be on its way to what was asked for
// A full store is emptied down to this share before anybody is refused.
constexpr double kFullShare = 0.9;

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& dir, BlobLimits limits,
                                                   const Clock& clock) {
  MW_TRY(MakeDirs(dir));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.find(kTemporaryMark) == std::string::npos &&
        name.find(kDamagedMark) == std::string::npos) {
      continue;
    }
    MW_TRY(RemoveAll(entry.path().string()));
  }
  if (error) return Fail(InvalidArgument(fmt::format("{}: {}", dir, error.message())));
  std::unique_ptr<BlobStore> store(new BlobStore(dir, limits, clock));
  for (const Stored& blob : store->Scan()) store->stored_ += blob.size;
  return store;
}

std::optional<BlobStore::Look> BlobStore::LookAtFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return Look{info.st_size, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_ino,
              info.st_dev};
}

std::optional<BlobStore::Look> BlobStore::LookAt(const std::string& sha256) const {
  if (!proto::IsSha256Hex(sha256)) return std::nullopt;
  return LookAtFile(PathFor(sha256));
}

std::optional<int64_t> BlobStore::Find(const std::string& sha256) const {
  const MutexLock lock(mutex_);
  const std::optional<Look> seen = LookAt(sha256);
  if (!seen) return std::nullopt;
  Touch(sha256, *seen);
  return seen->size;
}

void BlobStore::Touch(const std::string& sha256, const Look& seen) const {
  const int64_t now_ms = clock_.UnixMs();
  if (now_ms - seen.changed_ns / 1'000'000 < kTouchMs) return;
  const timespec now{now_ms / 1000, now_ms % 1000 * 1'000'000};
  const std::array<timespec, 2> times = {now, now};
  if (::utimensat(AT_FDCWD, PathFor(sha256).c_str(), times.data(), 0) != 0) return;
  const auto it = verified_.find(sha256);
  if (it != verified_.end() && it->second == seen) it->second.changed_ns = now_ms * 1'000'000;
}

bool BlobStore::Verify(const std::string& sha256, bool anew) {
  if (!Find(sha256)) return false;
  std::optional<Look> seen;
  {
    const MutexLock lock(mutex_);
    seen = LookAt(sha256);
    if (!seen) return false;
    const auto it = verified_.find(sha256);
    if (!anew && it != verified_.end() && it->second == *seen) return true;
  }
  const auto found = Sha256File(PathFor(sha256));
  if (!found.has_value() || *found != sha256) {
    PutAside(sha256, *seen);
    return false;
  }
  const MutexLock lock(mutex_);
  verified_[sha256] = *seen;
  return true;
}

void BlobStore::PutAside(const std::string& sha256, const Look& seen) {
  const MutexLock lock(mutex_);
  verified_.erase(sha256);
  const std::optional<Look> now = LookAt(sha256);
  // Somebody may have uploaded it again meanwhile.
  if (!now || now->inode != seen.inode) return;
  const std::string path = PathFor(sha256);
  if (std::rename(path.c_str(), (path + kDamagedMark).c_str()) != 0) {
    LogError(OsError(errno, fmt::format("rename {}", path)).message());
    return;
  }
  stored_ -= seen.size;
  LogError(
      fmt::format("{} was damaged: its bytes are not those of its name; it is kept as {}{} "
                  "until the controller starts again, and has to be uploaded anew",
                  path, path, kDamagedMark));
}

std::vector<BlobStore::Stored> BlobStore::Scan() const {
  std::vector<Stored> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir_, error)) {
    const std::string name = entry.path().filename().string();
    const std::optional<Look> seen = LookAt(name);
    if (!seen) continue;
    found.push_back({name, seen->size, clock_.UnixMs() - seen->changed_ns / 1'000'000});
  }
  return found;
}

int64_t BlobStore::Collect(const std::set<std::string>& in_use) {
  std::vector<Stored> spare = Scan();
  int64_t stored = 0;
  for (const Stored& blob : spare) stored += blob.size;
  stored_ = stored;
  std::erase_if(spare, [&](const Stored& blob) {
    return in_use.contains(blob.sha256) || blob.idle_ms < kLeastIdleMs;
  });
  std::sort(spare.begin(), spare.end(),
            [](const Stored& a, const Stored& b) { return a.idle_ms > b.idle_ms; });
  const auto full = static_cast<int64_t>(static_cast<double>(limits_.quota_bytes) * kFullShare);
  int64_t freed = 0;
  for (const Stored& blob : spare) {
    const bool too_much = limits_.quota_bytes > 0 && bytes() > full;
    if (blob.idle_ms >= limits_.keep_ms || too_much) freed += Remove(blob);
  }
  if (freed > 0) LogInfo(fmt::format("{} of blobs that no job uses are free", FormatBytes(freed)));
  return freed;
}

int64_t BlobStore::Remove(const Stored& blob) {
  MW_CHECK(blob.size >= 0) << blob.sha256 << " has " << blob.size << " bytes";
  const MutexLock lock(mutex_);
  const std::optional<Look> now = LookAt(blob.sha256);
  const bool used = now && clock_.UnixMs() - now->changed_ns / 1'000'000 < kLeastIdleMs;
  if (used || ::unlink(PathFor(blob.sha256).c_str()) != 0) return 0;
  verified_.erase(blob.sha256);
  stored_ -= blob.size;
  return blob.size;
}

Result<std::string> BlobStore::PathOf(const std::string& sha256) const {
  if (!Find(sha256)) {
    return Fail(NotFound(
        fmt::format("blob '{}' is not on this controller; upload it first", sha256.substr(0, 64))));
  }
  return PathFor(sha256);
}

std::optional<ir::BlobRef> BlobStore::FindLinked(const Look& file, const std::string& name) const {
  const MutexLock lock(mutex_);
  for (const auto& [sha256, verified] : verified_) {
    if (verified != file || LookAt(sha256) != file) continue;
    Touch(sha256, file);
    return ir::BlobRef{sha256, file.size, name};
  }
  return std::nullopt;
}

void BlobStore::RememberLink(const std::string& sha256, const std::optional<Look>& file) {
  const MutexLock lock(mutex_);
  if (file && LookAt(sha256) == file) verified_[sha256] = *file;
}

Result<ir::BlobRef> BlobStore::AddFile(const std::string& path, const std::string& name) {
  const std::optional<Look> before = LookAtFile(path);
  if (before) {
    if (const auto linked = FindLinked(*before, name)) return *linked;
  }
  ir::BlobRef blob;
  blob.name = name;
  MW_ASSIGN_OR_RETURN(blob.sha256, Sha256File(path));
  MW_ASSIGN_OR_RETURN(blob.size_bytes, FileSize(path));
  RememberLink(blob.sha256, before);
  if (Find(blob.sha256)) return blob;
  std::error_code error;
  std::filesystem::create_hard_link(path, PathFor(blob.sha256), error);
  if (!error) {
    stored_ += blob.size_bytes;
    RememberLink(blob.sha256, before);
    return blob;
  }
  MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return PutBytes(bytes, name);
}

Result<ir::BlobRef> BlobStore::PutBytes(std::string_view bytes, const std::string& name) {
  ir::BlobRef blob{Sha256Hex(bytes), static_cast<int64_t>(bytes.size()), name};
  if (Verify(blob.sha256)) return blob;
  MW_ASSIGN_OR_RETURN(auto writer, Begin(blob.sha256, blob.size_bytes));
  MW_TRY(writer->Write(bytes));
  MW_TRY(writer->Finish());
  return blob;
}

Result<std::unique_ptr<BlobStore::Writer>> BlobStore::Begin(const std::string& sha256,
                                                            int64_t size_bytes) {
  if (!proto::IsSha256Hex(sha256) || size_bytes < 0) {
    return Fail(InvalidArgument(
        fmt::format("a blob needs 64 lower-case hex digits and a size, not '{}' and {}",
                    sha256.substr(0, 80), size_bytes)));
  }
  if (limits_.quota_bytes > 0 && bytes() + size_bytes > limits_.quota_bytes) {
    return Fail(ResourceExhausted(
        fmt::format("the blobs take {}, with this one of {} more than --blob-quota-gib allows; "
                    "wait for jobs to end, or raise it",
                    FormatBytes(bytes()), FormatBytes(size_bytes))));
  }
  static std::atomic<uint64_t> serial{0};
  const std::string temporary =
      fmt::format("{}{}{}-{}", PathFor(sha256), kTemporaryMark, ::getpid(), serial.fetch_add(1));
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return Fail(OsError(errno, temporary));
  std::unique_ptr<Writer> writer(new Writer(this, sha256, size_bytes, std::move(fd)));
  writer->temporary_ = temporary;
  return writer;
}

BlobStore::Writer::Writer(BlobStore* store, std::string sha256, int64_t size_bytes, UniqueFd fd)
    : store_(store), sha256_(std::move(sha256)), size_bytes_(size_bytes), fd_(std::move(fd)) {
  store_->pending_ += size_bytes_;
}

BlobStore::Writer::~Writer() {
  MW_CHECK(written_ <= size_bytes_) << "blob " << sha256_ << " has more bytes than announced";
  store_->pending_ -= size_bytes_;
  if (!done_) ::unlink(temporary_.c_str());
}

Status BlobStore::Writer::Write(std::string_view bytes) {
  if (written_ + static_cast<int64_t>(bytes.size()) > size_bytes_) {
    return InvalidArgument(
        fmt::format("blob {}: more than the announced {} bytes came", sha256_, size_bytes_));
  }
  hash_.Update(bytes);
  written_ += static_cast<int64_t>(bytes.size());
  return WriteAll(fd_.get(), bytes, temporary_);
}

Status BlobStore::Writer::Finish() {
  const std::string found = hash_.HexDigest();
  if (written_ != size_bytes_ || found != sha256_) {
    return DataLoss(fmt::format("blob {}: {} of {} bytes came and their hash is {}; send it again",
                                sha256_, written_, size_bytes_, found));
  }
  if (::fsync(fd_.get()) != 0) return OsError(errno, fmt::format("fsync {}", temporary_));
  MW_TRY(store_->Publish(*this));
  done_ = true;
  // A program that refers to the blob may be durable before the name is, otherwise.
  return SyncFolder(store_->dir_);
}

Status BlobStore::Publish(const Writer& writer) {
  const MutexLock lock(mutex_);
  const std::optional<Look> old = LookAt(writer.sha256_);
  if (std::rename(writer.temporary_.c_str(), PathFor(writer.sha256_).c_str()) != 0) {
    return OsError(errno, fmt::format("rename {}", writer.temporary_));
  }
  stored_ += writer.size_bytes_ - (old ? old->size : 0);
  if (const std::optional<Look> now = LookAt(writer.sha256_)) verified_[writer.sha256_] = *now;
  return OkStatus();
}

}  // namespace meshwright::controller
