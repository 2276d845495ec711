// DeviceMemory: the bytes of one device, shared by its programs.
//
//   * persistent: one place per name (weights, optimizer state), zeroed at first, kept as long as
//     the runtime; in the device's memory, or in the host's or a file where the programs say so.
//   * the host's arena: what programs put into the host's memory for a part of a step.
//   * arena: transient slots and workspace; programs never run at the same time, so they share the
//     largest.
//   * scratch: what plans do not know: packed tiles and buckets, donated outputs that cannot be
//     computed in place, what kernels and groups of a GPU need. Where collectives run beside
//     kernels, both have their own. Where a program says that they do, buckets and other
//     collectives have theirs, too: one may be under way when the other begins.
//
// Two phases: Add* while programs are loaded, then Allocate once; addresses exist only afterwards.
//
// Thread rule: one thread at a time. Ownership: owns the memory; frees it when destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/scratch_file.h"
#include "device/device.h"
#include "device/scratch.h"
#include "ir/program.h"

namespace meshwright::worker {

struct ScratchNeed {
  int64_t collective_bytes = 0;  // but for buckets
  int64_t bytes = 0;
  int64_t bucket_bytes = 0;

  int64_t most_collective_bytes() const { return std::max(collective_bytes, bucket_bytes); }
};

class DeviceMemory {
 public:
  // overlap: collectives run beside kernels, whatever programs say.
  explicit DeviceMemory(bool overlap = false) : overlap_(overlap) {}

  struct Persistent {
    ir::TensorType type;
    ir::MemoryKind kind = ir::MemoryKind::kWeights;
    ir::Space space = ir::Space::kDevice;
    int64_t offset_bytes = 0;
    ir::TensorType part;  // of which all is read and written from outside (ir::Slot::part)
  };

  // Errors: kInvalidArgument when a persistent slot has another type, or is in another memory, in
  // another program.
  Status AddProgram(const ir::Program& program);
  void AddScratch(const ScratchNeed& need);
  // Of groups, which use it one after the other.
  void AddGroupScratch(int64_t bytes);

  // Errors: as device::Device::Allocate and ScratchFile::Make; kFailedPrecondition without a folder
  // for what is on a disk.
  Status Allocate(device::Device& device, const device::Scratch& scratch = {});
  bool allocated() const { return persistent_memory_ != nullptr; }

  // What Allocate() got from the device.
  std::vector<const device::Memory*> memories() const {
    return {arena_memory_.get(), persistent_memory_.get()};
  }

  // REQUIRES Allocate() and a slot of an added program, which is not on a disk.
  std::byte* Address(const ir::Slot& slot) const;
  std::byte* arena() const { return arena_memory_->data(); }
  std::byte* group_scratch() const { return arena() + arena_bytes_; }
  int64_t group_scratch_bytes() const { return group_scratch_bytes_; }
  // All for something that was added with this need.
  std::byte* bucket_scratch() const { return group_scratch() + group_scratch_bytes_; }
  std::byte* collective_scratch() const {
    return bucket_scratch() + (apart_ ? most_.bucket_bytes : 0);
  }
  std::byte* scratch(const ScratchNeed& need) const {
    if (apart_) return collective_scratch() + most_.collective_bytes;
    return bucket_scratch() +
           device::AlignUp(overlap_ ? most_.most_collective_bytes() : need.most_collective_bytes());
  }

  const std::map<std::string, Persistent>& persistent() const { return persistent_; }
  std::byte* Address(const Persistent& entry) const;
  // Where a slot on a disk begins in the file.
  int64_t FileOffset(const ir::Slot& slot) const;
  // Null: nothing is on a disk.
  const ScratchFile* file() const { return file_.get(); }
  int64_t host_bytes() const { return host_bytes_ + host_arena_bytes_; }
  int64_t disk_bytes() const { return disk_bytes_; }

 private:
  std::map<std::string, Persistent> persistent_;
  int64_t persistent_bytes_ = 0;  // of the device
  int64_t host_bytes_ = 0;        // persistent
  int64_t host_arena_bytes_ = 0;
  int64_t disk_bytes_ = 0;
  int64_t arena_bytes_ = 0;
  device::MemoryUse arena_use_;  // of the program with the largest arena
  int64_t scratch_bytes() const;

  const bool overlap_;
  bool apart_ =
      false;  // buckets and other collectives; a program says that they run beside kernels
  int64_t group_scratch_bytes_ = 0;
  ScratchNeed most_;                 // of each kind, aligned
  int64_t most_together_bytes_ = 0;  // of all that one has at a time, where nothing overlaps
  std::unique_ptr<device::Memory> persistent_memory_;
  std::unique_ptr<device::HostMemory> host_memory_;  // persistent, then the arena; null: none
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<device::Memory> arena_memory_;  // arena, then scratch
};

// The bytes of a program's arena by kind: a byte that several slots use in turn counts for the
// first of gradients, optimizer, weights, activations, workspace that uses it; unused bytes are
// kOther.
device::MemoryUse ArenaUse(const ir::Program& program);

}  // namespace meshwright::worker
