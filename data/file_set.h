// The files of a stream: verified once, mapped while they are used.
//
// Open() opens every file, compares size and, in place, the sampled hash, and closes it again but
// for the first kMapped: a data set may have more files than a process may have descriptors. Get()
// maps a file that is not mapped and lets go of the one that was used least recently.
//
// Thread rule: thread-safe. Ownership: the opener outlives the set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "data/mapped_file.h"
#include "ir/data_spec.h"

namespace meshwright::data {

// Opens a file of a job: below a root, from the blobs, or where a client has it.
using Opener = std::function<Result<UniqueFd>(const ir::FileRef&)>;

class FileSet {
 public:
  static constexpr size_t kMapped = 128;

  // Errors: those of the opener; kFailedPrecondition: a file in place differs from the one that the
  // job was submitted with.
  static Result<std::unique_ptr<FileSet>> Open(std::vector<ir::FileRef> files, Opener opener);

  // The file, mapped and of the size that it had. Errors: those of Open; kDataLoss as
  // MappedFile::Check.
  Result<std::shared_ptr<const MappedFile>> Get(size_t index);
  const ir::FileRef& ref(size_t index) const { return files_[index]; }
  size_t mapped() const;

 private:
  struct Entry {
    std::shared_ptr<const MappedFile> map;
    uint64_t used = 0;
  };
  FileSet(std::vector<ir::FileRef> files, Opener opener);
  Status Verify(const ir::FileRef& file) const;
  Result<std::shared_ptr<const MappedFile>> MapLocked(size_t index) MW_REQUIRES(mutex_);

  const std::vector<ir::FileRef> files_;
  const Opener opener_;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ MW_GUARDED_BY(mutex_);
  std::vector<size_t> mapped_ MW_GUARDED_BY(mutex_);  // of entries_
  uint64_t uses_ MW_GUARDED_BY(mutex_) = 0;
};

}  // namespace meshwright::data
