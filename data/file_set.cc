#include "data/file_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/identity.h"

namespace meshwright::data {

FileSet::FileSet(std::vector<ir::FileRef> files, Opener opener)
    : files_(std::move(files)), opener_(std::move(opener)), entries_(files_.size()) {
  mapped_.reserve(std::min(kMapped, files_.size()));
}

Result<std::unique_ptr<FileSet>> FileSet::Open(std::vector<ir::FileRef> files, Opener opener) {
  std::unique_ptr<FileSet> set(new FileSet(std::move(files), std::move(opener)));
  for (const ir::FileRef& file : set->files_) MW_TRY(set->Verify(file));
  const MutexLock lock(set->mutex_);
  for (size_t i = 0; i < std::min(kMapped, set->files_.size()); ++i) MW_TRY(set->MapLocked(i));
  return set;
}

// A blob was verified when it arrived.
Status FileSet::Verify(const ir::FileRef& file) const {
  MW_ASSIGN_OR_RETURN(const UniqueFd fd, opener_(file));
  if (!file.in_place()) return OkStatus();
  MW_ASSIGN_OR_RETURN(const auto map, MappedFile::Map(UniqueFd(::dup(fd.get())),
                                                      file.blob.size_bytes, file.blob.name));
  MW_ASSIGN_OR_RETURN(const std::string found,
                      SampledHash(fd.get(), file.blob.size_bytes, file.blob.name));
  if (found == file.sampled) return OkStatus();
  return FailedPrecondition(
      fmt::format("{} below the data root {} holds other bytes than the job was submitted with "
                  "(hash of samples "
                  "{}, expected {}): make the copies of all workers equal, or submit again",
                  file.blob.name, file.root, found.substr(0, 12), file.sampled.substr(0, 12)));
}

Result<std::shared_ptr<const MappedFile>> FileSet::Get(size_t index) {
  MW_CHECK(index < files_.size()) << "file " << index << " of " << files_.size();
  std::shared_ptr<const MappedFile> map;
  {
    const MutexLock lock(mutex_);
    entries_[index].used = ++uses_;
    if (!entries_[index].map) MW_TRY(MapLocked(index));
    map = entries_[index].map;
  }
  MW_TRY(map->Check());
  return map;
}

size_t FileSet::mapped() const {
  const MutexLock lock(mutex_);
  return mapped_.size();
}

Result<std::shared_ptr<const MappedFile>> FileSet::MapLocked(size_t index) {
  const ir::FileRef& file = files_[index];
  MW_ASSIGN_OR_RETURN(UniqueFd fd, opener_(file));
  MW_ASSIGN_OR_RETURN(auto map,
                      MappedFile::Map(std::move(fd), file.blob.size_bytes, file.blob.name));
  if (mapped_.size() >= kMapped) {
    const auto oldest = std::min_element(mapped_.begin(), mapped_.end(),
                                         [this](size_t a, size_t b) MW_REQUIRES(mutex_) {
                                           return entries_[a].used < entries_[b].used;
                                         });
    entries_[*oldest].map.reset();
    MW_CHECK(*oldest != index) << "file " << index << " is mapped twice";
    mapped_.erase(oldest);
  }
  entries_[index].map = map;
  mapped_.push_back(index);
  return map;
}

}  // namespace meshwright::data
