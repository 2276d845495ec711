// Blobs on the worker's disk, named by the SHA-256 of their bytes: fetched once, verified, shared
// by all jobs.
//
//   <dir>/<sha256>                 whole
//   <dir>/<sha256>.part-XXXXXX     being fetched; its writer holds a flock on it, so that one that
//                                  nobody locks is what a killed process left, also in a folder
//                                  that several workers share
//   <dir>/lock                     of a temporary folder: held while its worker lives. A folder
//                                  whose lock nobody holds is what a killed worker left, and goes
//                                  when the next one of the same user starts
// Different blobs are fetched side by side; who asks for one that is under way waits for it.
// Thread rule: thread-safe. Ownership: the link outlives the cache; a temporary folder goes with
// it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/file.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "worker/blobs.h"
#include "worker/link.h"

namespace meshwright::worker {

class BlobCache final : public Blobs {
 public:
  // dir: empty for a temporary folder. Errors: those of base/file.h.
  static Result<std::unique_ptr<BlobCache>> Open(const std::string& dir, ControllerLink* link);

  Result<std::string> Path(const ir::BlobRef& blob,
                           const std::function<bool()>& cancelled) override;

  // Why blobs cannot be kept here, since one could not; OK where all could.
  Status DiskStatus() const;
  // Tries the disk again: OK where what failed would work by now.
  Status ProbeDisk();

 private:
  BlobCache(std::string dir, ControllerLink* link) : dir_(std::move(dir)), link_(link) {}
  // Makes sure that `path` holds the blob. Called without the lock, by one thread per blob.
  Status Ensure(const ir::BlobRef& blob, const std::string& path, bool verified,
                const std::function<bool()>& cancelled);
  Status Fetch(const ir::BlobRef& blob, const std::string& path,
               const std::function<bool()>& cancelled);
  // The folder with its lock, also after somebody has cleaned it away.
  Status MakeFolder();
  // Notes a failure of the disk; returns it.
  Status DiskFailed(Status failure, int64_t wanted_bytes);

  std::optional<TempDir> temporary_;
  std::string dir_;
  ControllerLink* link_;
  mutable Mutex mutex_;
  CondVar landed_;
  UniqueFd lock_ MW_GUARDED_BY(mutex_);
  Status disk_ MW_GUARDED_BY(mutex_);
  int64_t wanted_bytes_ MW_GUARDED_BY(mutex_) = 0;  // of what the disk had no room for
  std::set<std::string> in_flight_ MW_GUARDED_BY(mutex_);
  std::set<std::string> verified_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
