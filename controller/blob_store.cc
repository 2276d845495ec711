#include "controller/blob_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/file_io.h"
#include "base/os_error.h"
#include "proto/job_codec.h"

namespace meshwright::controller {
namespace {

constexpr const char* kTemporaryMark = ".part-";

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& dir) {
  MW_TRY(MakeDirs(dir));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().filename().string().find(kTemporaryMark) == std::string::npos) continue;
    MW_TRY(RemoveAll(entry.path().string()));
  }
  if (error) return Fail(InvalidArgument(fmt::format("{}: {}", dir, error.message())));
  return std::unique_ptr<BlobStore>(new BlobStore(dir));
}

std::optional<int64_t> BlobStore::Find(const std::string& sha256) const {
  if (!proto::IsSha256Hex(sha256)) return std::nullopt;
  const auto size = FileSize(dir_ + "/" + sha256);
  if (!size.has_value()) return std::nullopt;
  return *size;
}

Result<std::string> BlobStore::PathOf(const std::string& sha256) const {
  if (!Find(sha256)) {
    return Fail(NotFound(
        fmt::format("blob '{}' is not on this controller; upload it first", sha256.substr(0, 64))));
  }
  return dir_ + "/" + sha256;
}

Result<ir::BlobRef> BlobStore::AddFile(const std::string& path, const std::string& name) {
  ir::BlobRef blob;
  blob.name = name;
  MW_ASSIGN_OR_RETURN(blob.sha256, Sha256File(path));
  MW_ASSIGN_OR_RETURN(blob.size_bytes, FileSize(path));
  if (Find(blob.sha256)) return blob;
  const std::string target = dir_ + "/" + blob.sha256;
  std::error_code error;
  std::filesystem::create_hard_link(path, target, error);
  if (!error) return blob;
  MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return PutBytes(bytes, name);
}

Result<ir::BlobRef> BlobStore::PutBytes(std::string_view bytes, const std::string& name) {
  ir::BlobRef blob{Sha256Hex(bytes), static_cast<int64_t>(bytes.size()), name};
  if (Find(blob.sha256)) return blob;
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
  static std::atomic<uint64_t> serial{0};
  const std::string path = dir_ + "/" + sha256;
  const std::string temporary =
      fmt::format("{}{}{}-{}", path, kTemporaryMark, ::getpid(), serial.fetch_add(1));
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return Fail(OsError(errno, temporary));
  std::unique_ptr<Writer> writer(new Writer(path, sha256, size_bytes, std::move(fd)));
  writer->temporary_ = temporary;
  return writer;
}

BlobStore::Writer::Writer(std::string path, std::string sha256, int64_t size_bytes, UniqueFd fd)
    : path_(std::move(path)),
      sha256_(std::move(sha256)),
      size_bytes_(size_bytes),
      fd_(std::move(fd)) {}

BlobStore::Writer::~Writer() {
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
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return OsError(errno, fmt::format("rename {}", temporary_));
  }
  done_ = true;
  // A program that refers to the blob may be durable before the name is, otherwise.
  return SyncFolder(std::filesystem::path(path_).parent_path().string());
}

}  // namespace meshwright::controller
