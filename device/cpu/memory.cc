#include "device/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "device/device.h"

namespace meshwright::device {
namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

// False only when the system says that there is no memory; without the system call, every page is
// touched.
bool Populate(std::byte* data, size_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < bytes; i += page) static_cast<volatile std::byte*>(data)[i] = std::byte{0};
  return true;
}

std::byte* AlignPointer(void* base, int64_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(base);
  const auto step = static_cast<uintptr_t>(alignment);
  return reinterpret_cast<std::byte*>((address + step - 1) / step * step);
}

}  // namespace

Result<Mapping> Mapping::Make(int64_t bytes) {
  const bool large = bytes >= kHugePageBytes;
  const int64_t alignment = large ? kHugePageBytes : sysconf(_SC_PAGESIZE);
  const int64_t usable = AlignUp(std::max<int64_t>(bytes, 1), alignment);
  const size_t mapped = static_cast<size_t>(large ? usable + alignment : usable);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return Fail(ResourceExhausted(
        fmt::format("mapping {} bytes of host memory: {}", bytes, std::strerror(errno))));
  }
  std::byte* data = AlignPointer(base, alignment);
  Mapping mapping(base, mapped, data);
  // Advice only: without huge pages everything works, slower.
  if (large) madvise(data, static_cast<size_t>(usable), MADV_HUGEPAGE);
  if (!Populate(data, static_cast<size_t>(usable))) {
    return Fail(ResourceExhausted(
        fmt::format("making {} bytes of host memory present: {}", bytes, std::strerror(errno))));
  }
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

}  // namespace meshwright::device
