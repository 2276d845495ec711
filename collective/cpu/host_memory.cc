#include "collective/cpu/host_memory.h"

#include <utility>

namespace meshwright::collective {

std::byte* PeerMemory::At(SharedPlace place, int64_t bytes) const {
  if (place.memory < 0 || place.memory >= static_cast<int32_t>(regions.size())) {
    return nullptr;
  }
  const Region& region = regions[static_cast<size_t>(place.memory)];
  const bool inside =
      place.offset >= 0 && bytes <= region.bytes() && place.offset <= region.bytes() - bytes;
  return inside ? region.data() + place.offset : nullptr;
}

void OwnMemory::Add(const RegionHandle& handle, const std::byte* data) {
  handles_.push_back(handle);
  starts_.push_back(data);
}

SharedPlace OwnMemory::Find(const std::byte* data, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  for (size_t i = 0; i < handles_.size(); ++i) {
    const auto start = reinterpret_cast<uintptr_t>(starts_[i]);
    if (address >= start && bytes <= handles_[i].bytes &&
        address - start <= static_cast<uintptr_t>(handles_[i].bytes - bytes)) {
      return {static_cast<int32_t>(i), static_cast<int64_t>(address - start)};
    }
  }
  return {};
}

void HostMemory::Share(const RegionHandle& handle, const std::byte* data) {
  const MutexLock lock(mutex_);
  own_.Add(handle, data);
}

OwnMemory HostMemory::own() const {
  const MutexLock lock(mutex_);
  return own_;
}

void HostMemory::AddPeer(uint64_t process_id, PeerMemory memory) {
  const MutexLock lock(mutex_);
  peers_.emplace(process_id, std::make_unique<PeerMemory>(std::move(memory)));
}

const PeerMemory* HostMemory::peer(uint64_t process_id) const {
  const MutexLock lock(mutex_);
  const auto it = peers_.find(process_id);
  return it == peers_.end() ? nullptr : it->second.get();
}

}  // namespace meshwright::collective
