#include "data/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/os_error.h"

namespace meshwright::data {
namespace {

Result<int64_t> SizeOf(int fd, const std::string& name) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Fail(OsError(errno, "stat " + name));
  return int64_t{info.st_size};
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Map(UniqueFd file, int64_t bytes,
                                                          std::string name) {
  std::shared_ptr<MappedFile> mapped(new MappedFile(std::move(file), std::move(name)));
  MW_ASSIGN_OR_RETURN(const int64_t found, SizeOf(mapped->file_.get(), mapped->name_));
  if (found != bytes) {
    return Fail(FailedPrecondition(fmt::format(
        "{} has {} bytes here, the job was submitted with {}: make the copies of all workers "
        "equal, or submit again",
        mapped->name_, found, bytes)));
  }
  if (bytes > 0) {
    void* at =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, mapped->file_.get(), 0);
    if (at == MAP_FAILED) return Fail(OsError(errno, "map " + mapped->name_));
    mapped->data_ = static_cast<const std::byte*>(at);
    mapped->size_bytes_ = bytes;
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_bytes_));
  }
}

Status MappedFile::Check() const {
  MW_ASSIGN_OR_RETURN(const int64_t found, SizeOf(file_.get(), name_));
  if (found == size_bytes_) return OkStatus();
  return DataLoss(
      fmt::format("{} had {} bytes when the job started and has {} now: it was changed "
                  "while the job ran",
                  name_, size_bytes_, found));
}

}  // namespace meshwright::data
