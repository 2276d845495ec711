// Blobs on the worker's disk, named by the SHA-256 of their bytes: fetched once, verified, shared
// by all jobs.
//
//   <dir>/<sha256>                 whole
//   <dir>/<sha256>.part-XXXXXX     being fetched; its writer holds a flock on it, so that one that
//                                  nobody locks is what a killed process left, also in a folder
//                                  that several workers share
// Different blobs are fetched side by side; who asks for one that is under way waits for it.
// Thread rule: thread-safe. Ownership: the link outlives the cache; a temporary folder goes with
// it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "ir/job.h"
#include "worker/link.h"

namespace meshwright::worker {

class BlobCache {
 public:
  // dir: empty for a temporary folder. Errors: those of base/file.h.
  static Result<std::unique_ptr<BlobCache>> Open(const std::string& dir, ControllerLink* link);

  // The file that holds the blob. `cancelled` is asked between chunks and while waiting for another
  // fetch of the same blob.
  // Errors: kNotFound, kDataLoss when the bytes are not those named, kCancelled,
  // kResourceExhausted.
  Result<std::string> Path(const ir::BlobRef& blob, const std::function<bool()>& cancelled);
  // The bytes themselves, for small blobs.
  Result<std::string> Read(const ir::BlobRef& blob, const std::function<bool()>& cancelled);

 private:
  BlobCache(std::string dir, ControllerLink* link) : dir_(std::move(dir)), link_(link) {}
  // Makes sure that `path` holds the blob. Called without the lock, by one thread per blob.
  Status Ensure(const ir::BlobRef& blob, const std::string& path, bool verified,
                const std::function<bool()>& cancelled);
  Status Fetch(const ir::BlobRef& blob, const std::string& path,
               const std::function<bool()>& cancelled);

  std::optional<TempDir> temporary_;
  std::string dir_;
  ControllerLink* link_;
  std::mutex mutex_;
  std::condition_variable landed_;
  std::set<std::string> in_flight_;  // guarded by mutex_
  std::set<std::string> verified_;   // guarded by mutex_
};

}  // namespace meshwright::worker
