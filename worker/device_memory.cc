#include "worker/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace meshwright::worker {
namespace {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

// Bytes covered by at least one interval.
int64_t UnionBytes(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t bytes = 0;
  int64_t covered = 0;
  for (const Interval& interval : intervals) {
    const int64_t begin = std::max(interval.begin, covered);
    if (interval.end > begin) bytes += interval.end - begin;
    covered = std::max(covered, interval.end);
  }
  return bytes;
}

}  // namespace

device::MemoryUse ArenaUse(const ir::Program& program) {
  constexpr ir::MemoryKind kPriority[] = {ir::MemoryKind::kGradients, ir::MemoryKind::kOptimizer,
                                          ir::MemoryKind::kWeights, ir::MemoryKind::kActivations,
                                          ir::MemoryKind::kWorkspace};
  device::MemoryUse use;
  std::vector<Interval> intervals;
  int64_t counted = 0;
  for (ir::MemoryKind kind : kPriority) {
    for (const ir::Slot& slot : program.slots) {
      if (slot.persistent || slot.kind != kind || slot.space != ir::Space::kDevice) continue;
      intervals.push_back({slot.offset_bytes, slot.offset_bytes + slot.type.bytes()});
    }
    if (kind == ir::MemoryKind::kWorkspace) {
      intervals.push_back(
          {program.workspace_offset, program.workspace_offset + program.workspace_bytes});
    }
    const int64_t covered = UnionBytes(intervals);
    MW_CHECK(covered >= counted) << "more slots cover " << counted - covered << " bytes less";
    use[kind] = covered - counted;
    counted = covered;
  }
  use[ir::MemoryKind::kOther] = program.arena_bytes - counted;
  return use;
}

Status DeviceMemory::AddProgram(const ir::Program& program) {
  MW_CHECK(!allocated()) << "program " << program.name << " comes after its memory";
  apart_ = apart_ || program.overlap == ir::OverlapMode::kOn;
  for (const ir::Slot& slot : program.slots) {
    if (!slot.persistent) continue;
    const auto it = persistent_.find(slot.name);
    if (it == persistent_.end()) {
      int64_t& bytes = slot.space == ir::Space::kHost   ? host_bytes_
                       : slot.space == ir::Space::kDisk ? disk_bytes_
                                                        : persistent_bytes_;
      persistent_[slot.name] = {slot.type, slot.kind, slot.space, bytes, slot.part()};
      bytes += device::AlignUp(slot.type.bytes());
    } else if (it->second.type != slot.type) {
      return InvalidArgument(fmt::format(
          "program {}/{}: persistent slot '{}' is {}, in another program of the device {}",
          program.name, program.device.value(), slot.name, slot.type.ToString(),
          it->second.type.ToString()));
    } else if (it->second.space != slot.space) {
      return InvalidArgument(
          fmt::format("program {}/{}: persistent slot '{}' has its place in the memory \"{}\", in "
                      "another program of the device in \"{}\"",
                      program.name, program.device.value(), slot.name, SpaceName(slot.space),
                      SpaceName(it->second.space)));
    }
  }
  host_arena_bytes_ = std::max(host_arena_bytes_, device::AlignUp(ir::HostArenaBytes(program)));
  if (program.arena_bytes > arena_bytes_) {
    arena_bytes_ = device::AlignUp(program.arena_bytes);
    arena_use_ = ArenaUse(program);
    arena_use_[ir::MemoryKind::kOther] += arena_bytes_ - program.arena_bytes;
  }
  return OkStatus();
}

void DeviceMemory::AddScratch(const ScratchNeed& need) {
  MW_CHECK(!allocated() && need.bytes >= 0 && need.collective_bytes >= 0 && need.bucket_bytes >= 0)
      << "scratch of " << need.bytes << " and " << need.most_collective_bytes() << " bytes";
  most_.collective_bytes = std::max(most_.collective_bytes, device::AlignUp(need.collective_bytes));
  most_.bucket_bytes = std::max(most_.bucket_bytes, device::AlignUp(need.bucket_bytes));
  most_.bytes = std::max(most_.bytes, device::AlignUp(need.bytes));
  most_together_bytes_ =
      std::max(most_together_bytes_,
               device::AlignUp(need.most_collective_bytes()) + device::AlignUp(need.bytes));
}

int64_t DeviceMemory::scratch_bytes() const {
  if (apart_) return most_.bucket_bytes + most_.collective_bytes + most_.bytes;
  return overlap_ ? most_.most_collective_bytes() + most_.bytes : most_together_bytes_;
}

void DeviceMemory::AddGroupScratch(int64_t bytes) {
  group_scratch_bytes_ = std::max(group_scratch_bytes_, device::AlignUp(bytes));
}

Status DeviceMemory::Allocate(device::Device& device, const device::Scratch& scratch) {
  MW_CHECK(!allocated()) << "memory is allocated once";
  device::MemoryUse persistent_use;
  for (const auto& [name, entry] : persistent_) {
    if (entry.space != ir::Space::kDevice) continue;
    persistent_use[entry.kind] += device::AlignUp(entry.type.bytes());
  }
  device::MemoryUse arena_use = arena_use_;
  arena_use[ir::MemoryKind::kWorkspace] += group_scratch_bytes_ + scratch_bytes();
  MW_ASSIGN_OR_RETURN(arena_memory_, device.Allocate(arena_use));
  MW_ASSIGN_OR_RETURN(persistent_memory_, device.Allocate(persistent_use));
  if (host_bytes() > 0) {
    MW_ASSIGN_OR_RETURN(host_memory_, device.AllocateHost(host_bytes()));
  }
  if (disk_bytes_ == 0) return OkStatus();
  if (scratch.folder.empty()) {
    return FailedPrecondition(fmt::format(
        "{} bytes of the job are to be on a disk, and this worker has no folder for them: start it "
        "with --scratch-dir",
        disk_bytes_));
  }
  MW_ASSIGN_OR_RETURN(ScratchFile file, ScratchFile::Make(scratch.folder, disk_bytes_));
  file_ = std::make_unique<ScratchFile>(std::move(file));
  return OkStatus();
}

std::byte* DeviceMemory::Address(const ir::Slot& slot) const {
  MW_CHECK(allocated()) << "the address of '" << slot.name << "' before its memory";
  if (slot.persistent) return Address(persistent_.at(slot.name));
  if (slot.space == ir::Space::kDevice) return arena() + slot.offset_bytes;
  return host_memory_->data() + host_bytes_ + slot.offset_bytes;
}

std::byte* DeviceMemory::Address(const Persistent& entry) const {
  MW_CHECK(entry.space != ir::Space::kDisk) << "what is in a file has no address";
  const bool host = entry.space == ir::Space::kHost;
  return (host ? host_memory_->data() : persistent_memory_->data()) + entry.offset_bytes;
}

int64_t DeviceMemory::FileOffset(const ir::Slot& slot) const {
  const Persistent& entry = persistent_.at(slot.name);
  MW_CHECK(entry.space == ir::Space::kDisk) << "'" << slot.name << "' is in no file";
  return entry.offset_bytes;
}

}  // namespace meshwright::worker
