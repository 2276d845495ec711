// A data file, mapped: no copy, and no memory but the pages that were read, which the system may
// take back.
//
// A file in place belongs to its user. One that shrinks under a map would end the process with
// SIGBUS, so a reader asks Check() before it touches the bytes: then it is an error that names the
// file.
//
// Thread rule: immutable. Ownership: spans live as long as the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::data {

class MappedFile {
 public:
  // `bytes`: the size that the file must have. `name` is for messages.
  // Errors: kFailedPrecondition: another size, says both.
  static Result<std::shared_ptr<const MappedFile>> Map(UniqueFd file, int64_t bytes,
                                                       std::string name);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Errors: kDataLoss: the file has another size by now.
  Status Check() const;
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  const std::string& name() const { return name_; }

 private:
  MappedFile(UniqueFd file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  const UniqueFd file_;
  const std::string name_;
  const std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace meshwright::data
