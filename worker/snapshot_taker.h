// Takes snapshots of a mesh's state on this worker into memory that outlives the process
// (checkpoint/snapshot.h, worker/snapshot_store.h).
//
// The devices copy on their own threads, each what it holds, and digests are computed while the
// bytes are in the cache. The layout is that of the first snapshot. Where the machine has not the
// memory for two slots there are none, and every call says so.
//
// Thread rule: the mesh's thread. Ownership: owns its mapping; the memory is the supervisor's, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "checkpoint/snapshot.h"
#include "proto/messages.h"
#include "worker/weights.h"

namespace meshwright::worker {

// Errors: kResourceExhausted naming the bytes: two slots do not fit, with a part left for others.
// available: bytes that this process may still take; nothing: not known.
Status CheckSnapshotMemory(const checkpoint::SnapshotLayout& layout,
                           std::optional<int64_t> available);

class SnapshotTaker {
 public:
  // memory: of checkpoint::MakeSnapshotMemory(), without a layout; invalid: there is none, and no
  // snapshot. available: bytes of memory that this process may still take; nothing: not known.
  SnapshotTaker(std::string worker, UniqueFd memory, std::vector<proto::RankTiles> tiles,
                std::function<std::optional<int64_t>()> available);

  // Of the state as it is, behind `step` steps. What goes wrong is in the answer.
  proto::SnapshotTaken Take(int64_t step, const StateSlots& slots, JobRuntime& runtime);

 private:
  Status Prepare(const StateSlots& slots);
  Status Copy(JobRuntime& runtime);

  const std::string worker_;
  checkpoint::SnapshotArea area_;
  const std::vector<proto::RankTiles> tiles_;
  const std::function<std::optional<int64_t>()> available_;
  bool prepared_ = false;
  Status why_not_;
};

}  // namespace meshwright::worker
