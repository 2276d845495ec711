// What an EmulatedDriver is made of. For its own files only.
//
// Thread rule: guarded by the driver's mutex, but for `running`.
#pragma once

#include <sys/mman.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "tests/emulated/driver.h"

namespace meshwright::emulated {

inline constexpr int64_t kPage = 4096;
inline constexpr int64_t kBlock = 256;  // every allocation starts at a multiple of it

inline int64_t Pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Tells the address sanitizer what of a device's memory has been given out.
void MarkUsable(const std::byte* data, int64_t bytes, bool usable);

// One device: an address range of which nothing can be touched between runs.
struct EmulatedDriver::Device {
  std::byte* base = nullptr;
  int64_t bytes = 0;
  std::map<int64_t, int64_t> blocks;  // offset -> bytes
  std::vector<Stream*> streams;
  std::optional<Code> spoil;  // the code that it is going to be lost with
  int64_t spoil_after = 0;    // functions
  bool hangs = false;
  Code lost = device::cuda::kSuccess;
  std::mt19937_64 random;
  std::mutex running;  // taken before the driver's mutex

  void Protect(bool open) const {
    const int access = open ? PROT_READ | PROT_WRITE : PROT_NONE;
    (void)::mprotect(base, static_cast<size_t>(bytes), access);
  }

  // Gives the whole pages of a block back to the system: Protect() costs time for each that is
  // there.
  void Forget(int64_t offset, int64_t size) const {
    const int64_t begin = Pages(offset);
    const int64_t end = (offset + size) / kPage * kPage;
    if (end > begin) (void)::madvise(base + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  }
};

// Shared with the work that names it: CUDA lets an event go before its work is done.
struct EmulatedDriver::Event {
  int64_t recorded = 0;  // how often Record was called
  int64_t passed = 0;    // the last of these that its stream got to
};

struct EmulatedDriver::Graph {
  std::vector<Work> work;
};

}  // namespace meshwright::emulated
