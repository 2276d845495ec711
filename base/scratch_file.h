// ScratchFile: bytes on a disk that are nobody's but this process's, and end with it.
//
// The file has no name (O_TMPFILE, or the name is taken away when it is made), so that the system
// frees it with its last descriptor, also after kill -9: there is nothing to clean up. Its room is
// taken when it is made; a disk that is full says so then and not in the middle of a run.
//
// Thread rule: Read and Write from any thread, of ranges that do not overlap. Ownership: closes the
// descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright {

class ScratchFile {
 public:
  // `bytes` zeros in the folder, which is made if it is not there. Errors: as base/file.h, with the
  // folder and what to do.
  static Result<ScratchFile> Make(const std::string& folder, int64_t bytes);

  // REQUIRES ranges within bytes(). Errors: kDataLoss, kResourceExhausted, with the folder and what
  // to do.
  Status Read(int64_t offset, std::span<std::byte> into) const;
  Status Write(int64_t offset, std::span<const std::byte> from) const;

  const std::string& folder() const { return folder_; }
  int64_t bytes() const { return bytes_; }

 private:
  ScratchFile(UniqueFd fd, std::string folder, int64_t bytes)
      : fd_(std::move(fd)), folder_(std::move(folder)), bytes_(bytes) {}

  UniqueFd fd_;
  std::string folder_;
  int64_t bytes_ = 0;
};

}  // namespace meshwright
