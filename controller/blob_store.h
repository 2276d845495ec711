// Files named by the SHA-256 of their bytes: programs, data, weights to start from.
//
// A blob appears under its name only when complete, verified and durable; half-written ones have
// temporary names and are removed when the store is opened. Thread rule: thread-safe; a Writer is
// used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "ir/job.h"

namespace meshwright::controller {

class BlobStore {
 public:
  static Result<std::unique_ptr<BlobStore>> Open(const std::string& dir);

  // Bytes of the blob, or nothing when it is not here.
  std::optional<int64_t> Find(const std::string& sha256) const;
  // Errors: kNotFound naming the hash.
  Result<std::string> PathOf(const std::string& sha256) const;
  // Stores a value of this process and names it. Errors: those of base/file.h.
  Result<ir::BlobRef> PutBytes(std::string_view bytes, const std::string& name);

  // Takes a file of this machine that does not change any more: linked where that is possible, else
  // copied. Errors: those of base/file.h.
  Result<ir::BlobRef> AddFile(const std::string& path, const std::string& name);

  class Writer {
   public:
    ~Writer();
    // Errors: kResourceExhausted on a full disk, kInvalidArgument when more than was announced
    // comes.
    Status Write(std::string_view bytes);
    // Errors: kDataLoss when bytes or hash are not what was announced.
    Status Finish();

   private:
    friend class BlobStore;
    Writer(std::string path, std::string sha256, int64_t size_bytes, UniqueFd fd);
    std::string path_;
    std::string temporary_;
    std::string sha256_;
    int64_t size_bytes_;
    int64_t written_ = 0;
    Sha256 hash_;
    UniqueFd fd_;
    bool done_ = false;
  };
  // Errors: kInvalidArgument for a malformed hash or size.
  Result<std::unique_ptr<Writer>> Begin(const std::string& sha256, int64_t size_bytes);

 private:
  explicit BlobStore(std::string dir) : dir_(std::move(dir)) {}
  std::string dir_;
};

}  // namespace meshwright::controller
