// Files named by the SHA-256 of their bytes: programs, data, weights to start from.
//
// A blob appears under its name only when complete, verified and durable; half-written ones have
// temporary names and are removed when the store is opened. What happens to its file later is found
// by Verify: a damaged blob is put aside as "<sha256>.damaged", and may be uploaded again.
//
// A blob that no job in the queue or at work uses goes once it has not been asked for some time,
// sooner where the store is nearly full; when it was asked for last is its file's time of change.
//
// Thread rule: thread-safe; a Writer is used by one thread at a time. Ownership: the store outlives
// its writers.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "ir/job.h"

namespace meshwright::controller {

struct BlobLimits {
  int64_t keep_ms = int64_t{7} * 24 * 3'600'000;  // what nobody uses or asks for
  int64_t quota_bytes = 0;                        // of all blobs; 0: as the disk has room
};

class BlobStore {
 public:
  static Result<std::unique_ptr<BlobStore>> Open(const std::string& dir, BlobLimits limits = {},
                                                 const Clock& clock = SystemClock());

  // Bytes of the blob, or nothing when it is not here. Counts as a use.
  std::optional<int64_t> Find(const std::string& sha256) const;
  // Whether the blob is here and is what its name says. Reads it unless it has not changed since it
  // was read last; `anew`: reads it in any case.
  bool Verify(const std::string& sha256, bool anew = false);
  // Removes what is not in `in_use` and has had its time. Returns the bytes that became free.
  int64_t Collect(const std::set<std::string>& in_use);
  // Of all blobs, those being uploaded with them.
  int64_t bytes() const { return stored_.load() + pending_.load(); }
  // Errors: kNotFound naming the hash.
  Result<std::string> PathOf(const std::string& sha256) const;
  // Stores a value of this process and names it. Errors: those of base/file.h.
  Result<ir::BlobRef> PutBytes(std::string_view bytes, const std::string& name);

  // Takes a file of this machine that does not change any more: linked where that is possible, else
  // copied. A linked file is read once, while it looks the same. Errors: those of base/file.h.
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
    Writer(BlobStore* store, std::string sha256, int64_t size_bytes, UniqueFd fd);
    BlobStore* store_;
    std::string temporary_;
    std::string sha256_;
    int64_t size_bytes_;
    int64_t written_ = 0;
    Sha256 hash_;
    UniqueFd fd_;
    bool done_ = false;
  };
  // Errors: kInvalidArgument for a malformed hash or size, kResourceExhausted beyond the quota.
  Result<std::unique_ptr<Writer>> Begin(const std::string& sha256, int64_t size_bytes);

 private:
  // Of a file: what changes when it is written to.
  struct Look {
    int64_t size = 0;
    int64_t changed_ns = 0;
    uint64_t inode = 0;
    uint64_t disk = 0;
    friend bool operator==(const Look&, const Look&) = default;
  };
  struct Stored {
    std::string sha256;
    int64_t size = 0;
    int64_t idle_ms = 0;
  };

  BlobStore(std::string dir, BlobLimits limits, const Clock& clock)
      : dir_(std::move(dir)), limits_(limits), clock_(clock) {}
  std::string PathFor(const std::string& sha256) const { return dir_ + "/" + sha256; }
  static std::optional<Look> LookAtFile(const std::string& path);
  std::optional<Look> LookAt(const std::string& sha256) const;
  std::optional<ir::BlobRef> FindLinked(const Look& file, const std::string& name) const;
  // After a file was read that looked so before: the blob is that file, if it looks so, too.
  void RememberLink(const std::string& sha256, const std::optional<Look>& file);
  void Touch(const std::string& sha256, const Look& seen) const MW_REQUIRES(mutex_);
  void PutAside(const std::string& sha256, const Look& seen);
  Status Publish(const Writer& writer);
  std::vector<Stored> Scan() const;
  int64_t Remove(const Stored& blob);

  const std::string dir_;
  const BlobLimits limits_;
  const Clock& clock_;
  std::atomic<int64_t> stored_{0};   // as the last Collect found it, and what came and went since
  std::atomic<int64_t> pending_{0};  // being uploaded
  mutable Mutex mutex_;              // also: while a file gets or loses its name
  mutable std::map<std::string, Look> verified_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::controller
