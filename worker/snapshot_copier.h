// SnapshotCopier: keeps copies of boxes of another worker's snapshots in this worker's memory, so
// that they outlive that worker.
//
// It reads them over the data port, compares every piece with the digest that the other one
// computed, and has two slots like the original. Thread rule: Copy by one thread; area() from any.
// Ownership: owns its memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/snapshot.h"
#include "worker/snapshot_files.h"

namespace meshwright::worker {

class SnapshotCopier {
 public:
  // boxes: their keys (checkpoint/assign.h). available: as SnapshotTaker's.
  SnapshotCopier(SlotReader reader, std::set<std::string> boxes,
                 std::function<std::optional<int64_t>()> available)
      : reader_(std::move(reader)), boxes_(std::move(boxes)), available_(std::move(available)) {}

  // Those of the other one's slot of this step. Errors: kDataLoss: it is not there, or other bytes
  // came; kResourceExhausted: there is no memory; kUnavailable.
  Status Copy(int64_t step);
  // Null before the first one is begun.
  const checkpoint::SnapshotArea* area() const { return ready_ ? &*area_ : nullptr; }

 private:
  // Where a box is in the other one's slot.
  struct Place {
    int64_t begin_bytes = 0;
    size_t first_piece = 0;
  };
  Status Prepare();
  Status CopyBox(int64_t step, size_t box, std::span<const checkpoint::Digest> digests);

  SlotReader reader_;
  const std::set<std::string> boxes_;
  const std::function<std::optional<int64_t>()> available_;
  std::optional<checkpoint::SnapshotArea> area_;
  std::vector<Place> places_;  // by box of the area
  size_t pieces_ = 0;          // of the other one's slot
  std::atomic<bool> ready_{false};
};

}  // namespace meshwright::worker
