#include "device/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/parallel.h"
#include "device/device.h"

namespace meshwright::device {
namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

// One call holds the lock of the process's mappings, for seconds where a virtual machine has to get
// the memory first: a thread that allocates, as a heartbeat does, would wait for all of it.
constexpr size_t kPopulateBytes = size_t{32} << 20;

// A thread is worth its start for so many of these.
constexpr int64_t kPopulatesOfAThread = 4;

// The error of the system where it has no memory, else 0; without the system call, every page is
// touched. The system clears pages at the speed of one core for each thread that asks.
int Populate(std::byte* data, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto count = static_cast<int64_t>((bytes + kPopulateBytes - 1) / kPopulateBytes);
  std::atomic<int> error = 0;
  ParallelItems(count, kPopulatesOfAThread, [&](int64_t index) {
    const size_t begin = static_cast<size_t>(index) * kPopulateBytes;
    const size_t length = std::min(kPopulateBytes, bytes - begin);
    if (error != 0 || madvise(data + begin, length, MADV_POPULATE_WRITE) == 0) return;
    if (errno != EINVAL) {
      error = errno;
      return;
    }
    for (size_t i = 0; i < length; i += page) {
      static_cast<volatile std::byte*>(data + begin)[i] = std::byte{0};
    }
  });
  return error;
}

// The system promises pages of a shared file without counting them: asked for private memory of
// this length, it says whether there can be as many.
Status CheckCommit(int64_t bytes) {
  const auto length = static_cast<size_t>(bytes);
  void* probe = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) {
    return ResourceExhausted(
        fmt::format("mapping {} bytes of shared memory: {}", bytes, std::strerror(errno)));
  }
  munmap(probe, length);
  return OkStatus();
}

// Huge pages for shared memory; advice only. The system collapses a block only when a page of it is
// present.
void CollapseIntoHugePages(std::byte* data, int64_t bytes) {
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (int64_t i = 0; i < bytes; i += kHugePageBytes) {
    if (madvise(data + i, page, MADV_POPULATE_WRITE) != 0) return;
    if (madvise(data + i, kHugePageBytes, MADV_COLLAPSE) != 0) return;
  }
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
  if (const int error = Populate(data, static_cast<size_t>(usable)); error != 0) {
    return Fail(ResourceExhausted(
        fmt::format("making {} bytes of host memory present: {}", bytes, std::strerror(error))));
  }
  return mapping;
}

Result<Mapping> Mapping::MakeShared(int64_t bytes) {
  const int64_t usable =
      bytes >= kHugePageBytes ? AlignUp(bytes, kHugePageBytes) : SharedFile::MappedBytes(bytes);
  MW_TRY(CheckCommit(usable));
  MW_ASSIGN_OR_RETURN(SharedFile file, SharedFile::Create(usable));
  MW_ASSIGN_OR_RETURN(std::byte * data, file.Map());
  Mapping mapping(data, static_cast<size_t>(usable), data);
  if (usable >= kHugePageBytes) CollapseIntoHugePages(data, usable);
  if (const int error = Populate(data, static_cast<size_t>(usable)); error != 0) {
    return Fail(ResourceExhausted(
        fmt::format("making {} bytes of shared memory present: {}", bytes, std::strerror(error))));
  }
  mapping.file_ = std::move(file);
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      file_(std::move(other.file_)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(file_, other.file_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

}  // namespace meshwright::device
