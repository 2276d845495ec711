#include "device/staging.h"

#include <algorithm>
#include <cstring>

namespace meshwright::device {
namespace {

// Large enough to reach a bus's bandwidth, small enough to be pinned for every device.
constexpr int64_t kChunkBytes = int64_t{4} << 20;
// Of one chunk.
constexpr int64_t kTimeoutMs = 60'000;

std::byte* At(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* At(const void* data, int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

}  // namespace

Result<std::unique_ptr<Staging>> Staging::Make(Device& device) {
  std::unique_ptr<Staging> staging(new Staging(device));
  if (device.kind() == Kind::kCpu) return staging;
  for (std::unique_ptr<HostMemory>& chunk : staging->chunks_) {
    MW_ASSIGN_OR_RETURN(chunk, device.AllocateHost(kChunkBytes));
  }
  return staging;
}

Status Staging::Finish() { return device_.queue().Finish(Deadline::After(kTimeoutMs)); }

Status Staging::Write(void* to, const void* host, int64_t bytes) {
  if (chunks_[0] == nullptr) return device_.queue().CopyIn(to, host, bytes);
  size_t chunk = 0;
  for (int64_t offset = 0; offset < bytes; offset += kChunkBytes) {
    const int64_t part = std::min(kChunkBytes, bytes - offset);
    std::byte* const pinned = chunks_[chunk]->data();
    std::memcpy(pinned, At(host, offset), static_cast<size_t>(part));
    MW_TRY(Finish());  // the other chunk is free now
    MW_TRY(device_.queue().CopyIn(At(to, offset), pinned, part));
    chunk = 1 - chunk;
  }
  return Finish();
}

Status Staging::Read(void* host, const void* from, int64_t bytes) {
  if (chunks_[0] == nullptr) return device_.queue().CopyOut(host, from, bytes);
  size_t chunk = 0;
  int64_t done = 0;
  for (int64_t offset = 0; done < bytes; offset += kChunkBytes) {
    MW_TRY(Finish());
    if (offset < bytes) {
      const int64_t part = std::min(kChunkBytes, bytes - offset);
      MW_TRY(device_.queue().CopyOut(chunks_[chunk]->data(), At(from, offset), part));
    }
    chunk = 1 - chunk;
    if (offset == 0) continue;
    const int64_t part = std::min(kChunkBytes, bytes - done);
    std::memcpy(At(host, done), chunks_[chunk]->data(), static_cast<size_t>(part));
    done += part;
  }
  return OkStatus();
}

}  // namespace meshwright::device
