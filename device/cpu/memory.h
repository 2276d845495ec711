// Host memory for one CPU device: a mapping that is present before it is used, private or shared
// with other processes of the host.
//
// A step must not fault: first touch costs 3.4 GB/s with small pages and 23 GB/s with huge ones, so
// large mappings start at a 2 MiB boundary, ask for huge pages (the system's mode is often
// "madvise") and are populated when made, by the calling thread, which places them on that thread's
// memory node. The system's mode for shared memory is often "never": there a block with one page
// present is collapsed into a huge page on demand, which every mode allows and which costs as
// little.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "device/cpu/shared_file.h"

namespace meshwright::device {

class Mapping {
 public:
  // Zeroed, populated; at least `bytes` long. Errors: kResourceExhausted with the bytes asked for.
  static Result<Mapping> Make(int64_t bytes);
  // The same in a SharedFile.
  static Result<Mapping> MakeShared(int64_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  // Null when private.
  const SharedHandle* shared() const { return file_.valid() ? &file_.handle() : nullptr; }

 private:
  Mapping(void* base, size_t mapped_bytes, std::byte* data)
      : base_(base), mapped_bytes_(mapped_bytes), data_(data) {}

  void* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  SharedFile file_;
};

}  // namespace meshwright::device
