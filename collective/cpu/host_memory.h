// Device memory that processes of one host map from each other, as one fabric knows it: what peers
// may map of this process, and what this process has mapped of theirs.
//
// A peer's mapping stays valid when the peer dies or frees its memory: the kernel keeps the pages
// as long as somebody maps them.
//
// Thread rule: thread-safe. Ownership: owns the mappings; what peer() returned lives as long as it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "collective/cpu/region.h"

namespace meshwright::collective {

// Bytes of a process that its peers can find.
struct SharedPlace {
  int32_t memory = -1;  // index among the memories of that process; -1: nowhere
  int64_t offset = 0;
};

// This process's view of the memories of another one.
struct PeerMemory {
  std::vector<Region> regions = {};             // in the order in which the peer announced them
  bool complete = false;                        // all of them are mapped
  const std::atomic<bool>* departed = nullptr;  // the peer closed its fabric

  // Null when the place is not inside what is mapped.
  std::byte* At(SharedPlace place, int64_t bytes) const;
};

// The memories of this process, in the order in which they are announced.
class OwnMemory {
 public:
  void Add(const RegionHandle& handle, const std::byte* data);
  SharedPlace Find(const std::byte* data, int64_t bytes) const;
  const std::vector<RegionHandle>& handles() const { return handles_; }

 private:
  std::vector<RegionHandle> handles_;
  std::vector<const std::byte*> starts_;
};

class HostMemory {
 public:
  void Share(const RegionHandle& handle, const std::byte* data);
  OwnMemory own() const;

  // What a peer announced; null `departed` is not allowed. The first call for a process counts.
  void AddPeer(uint64_t process_id, PeerMemory memory);
  // Null before AddPeer.
  const PeerMemory* peer(uint64_t process_id) const;

 private:
  mutable Mutex mutex_;  // leaf lock
  OwnMemory own_ MW_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<PeerMemory>> peers_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::collective
