// Host memory for one CPU device: an anonymous mapping that is present before it is used.
//
// A step must not fault: first touch costs 3.4 GB/s with small pages and 23 GB/s with huge ones, so
// large mappings start at a 2 MiB boundary, ask for huge pages (the system's mode is often
// "madvise") and are populated when made, by the calling thread, which places them on that thread's
// memory node.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace meshwright::device {

inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class Mapping {
 public:
  // Zeroed, populated; at least `bytes` long. Errors: kResourceExhausted with the bytes asked for.
  static Result<Mapping> Make(int64_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }

 private:
  Mapping(void* base, size_t mapped_bytes, std::byte* data)
      : base_(base), mapped_bytes_(mapped_bytes), data_(data) {}

  void* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace meshwright::device
