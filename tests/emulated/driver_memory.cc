// The memory of emulated devices, and the host's that they reach.
#include <algorithm>

#include "tests/emulated/driver.h"
#include "tests/emulated/driver_parts.h"

#if defined(MW_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace meshwright::emulated {

using device::cuda::kOutOfMemory;
using device::cuda::kSuccess;
using device::cuda::StreamHandle;

// Tells the address sanitizer what of a device's memory has been given out.
void MarkUsable(const std::byte* data, int64_t bytes, bool usable) {
#if defined(MW_ADDRESS_SANITIZER)
  if (usable) {
    __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
  } else {
    __asan_poison_memory_region(data, static_cast<size_t>(bytes));
  }
#else
  (void)data, (void)bytes, (void)usable;
#endif
}

Code EmulatedDriver::Take(void** data, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Device& device = *devices_[static_cast<size_t>(CurrentDevice())];
  const int64_t taken = (bytes + kBlock - 1) / kBlock * kBlock;
  int64_t offset = 0;
  for (const auto& [begin, size] : device.blocks) {
    if (begin - offset >= taken + kBlock) break;
    offset = begin + size + kBlock;  // a gap, for the address sanitizer
  }
  if (offset + taken > device.bytes) return kOutOfMemory;
  device.blocks[offset] = taken;
  MarkUsable(device.base + offset, bytes, true);
  ++alive_["allocation"];
  *data = device.base + offset;
  return kSuccess;
}

void EmulatedDriver::Give(void* data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& device : devices_) {
    const int64_t offset = static_cast<std::byte*>(data) - device->base;
    if (offset < 0 || offset >= device->bytes) continue;
    const auto block = device->blocks.find(offset);
    if (block == device->blocks.end()) continue;
    device->Forget(offset, block->second);
    MarkUsable(device->base + offset, block->second, false);
    device->blocks.erase(block);
    --alive_["allocation"];
  }
}

Code EmulatedDriver::ReadMemory(int64_t* free_bytes, int64_t* total_bytes) {
  const Code code = Enter("ReadMemory", CurrentDevice());
  const std::lock_guard<std::mutex> lock(mutex_);
  const Device& device = *devices_[static_cast<size_t>(CurrentDevice())];
  *total_bytes = device.bytes;
  *free_bytes = device.bytes;
  for (const auto& [begin, size] : device.blocks) *free_bytes -= size;
  return code;
}

Code EmulatedDriver::Allocate(void** data, int64_t bytes) {
  const Code code = Enter("Allocate", CurrentDevice());
  return code == kSuccess ? Take(data, bytes) : code;
}

// As CUDA: the device does what it can before, whichever stream it is in.
Code EmulatedDriver::Release(void* data) {
  for (const auto& device : devices_) {
    const int64_t offset = static_cast<std::byte*>(data) - device->base;
    if (offset >= 0 && offset < device->bytes) {
      const std::lock_guard<std::mutex> lock(mutex_);
      BlameBusy("Release of memory", *device);
    }
    while (offset >= 0 && offset < device->bytes && RunSome(*device)) {
    }
  }
  Give(data);
  return Enter("Release", CurrentDevice());
}

Code EmulatedDriver::AllocateOrdered(void** data, int64_t bytes, StreamHandle) {
  const Code code = Enter("AllocateOrdered", CurrentDevice());
  return code == kSuccess ? Take(data, bytes) : code;
}

Code EmulatedDriver::ReleaseOrdered(void* data, StreamHandle stream) {
  const Code code = Enter("ReleaseOrdered", CurrentDevice());
  if (code != kSuccess) {
    Give(data);
    return code;
  }
  return static_cast<Stream*>(stream)->Push([this, data] {
    Give(data);
    return true;
  });
}

Code EmulatedDriver::AllocateHost(void** data, int64_t bytes) {
  const Code code = Enter("AllocateHost", CurrentDevice());
  if (code != kSuccess) return code;
  auto* block = new std::byte[static_cast<size_t>(bytes)];
  const std::lock_guard<std::mutex> lock(mutex_);
  host_[block] = {bytes, CurrentDevice()};
  ++alive_["host"];
  *data = block;
  return kSuccess;
}

Code EmulatedDriver::ReleaseHost(void* data) {
  const Code code = Enter("ReleaseHost", CurrentDevice());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto block = host_.find(static_cast<std::byte*>(data));
  if (block != host_.end()) {
    BlameBusy("ReleaseHost", *devices_[static_cast<size_t>(block->second.device)]);
    host_.erase(block);
    --alive_["host"];
  }
  delete[] static_cast<std::byte*>(data);
  return code;
}

bool EmulatedDriver::IsPageable(const void* data) const {
  if (IsDeviceMemory(data)) return false;
  const auto* place = static_cast<const std::byte*>(data);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = host_.upper_bound(place);
  if (it == host_.begin()) return true;
  --it;
  return place >= it->first + it->second.bytes;
}

}  // namespace meshwright::emulated
