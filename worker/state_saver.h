// Saves the state of a mesh while it trains on: copies it between two launches, writes the copy
// behind them.
//
// The copy is memory of the host that is kept for the next one. One save is written at a time; the
// controller does not ask for another one before this one's StateSaved.
//
// Thread rule: Save and Commit on the mesh's thread; files are written, and reports made, on a
// thread of its own. Destroying it ends what is being written at the next file, and says nothing
// any more. Ownership: files outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "checkpoint/shard.h"
#include "device/cpu/memory.h"
#include "proto/messages.h"
#include "worker/checkpoint_files.h"
#include "worker/weights.h"

namespace meshwright::worker {

class StateSaver {
 public:
  // `report` may be called from its thread until it is destroyed. `worker` is for errors.
  StateSaver(std::string worker, CheckpointFiles& files, std::function<void(proto::UpBody)> report);
  ~StateSaver();

  // Copies; the files are written behind, and told by a StateSaved. Errors: kFailedPrecondition:
  // another save is being written; kNotFound naming rank and slot; the device's.
  Status Save(const proto::SaveState& message, const StateSlots& slots, JobRuntime& runtime);
  // Makes what was written a checkpoint; told by a CheckpointCommitted.
  void Commit(proto::CommitCheckpoint message);

 private:
  struct RankCopy {
    int rank = 0;
    std::optional<device::Mapping> memory;    // of all boxes, one after the other
    int64_t bytes = 0;                        // that it has room for
    std::vector<checkpoint::BoxBytes> boxes;  // in it
  };

  Status MakeRoom(const proto::RankTiles& tiles, const StateSlots& slots, RankCopy& copy);
  void WriteCopies(const proto::SaveState& message, double copy_seconds);
  Result<std::string> Write(const proto::SaveState& message);
  proto::RuntimeError Error(const Status& status) const;

  const std::string worker_;
  CheckpointFiles& files_;
  const std::function<void(proto::UpBody)> report_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> writing_{false};  // then copies_ belong to the thread
  std::vector<RankCopy> copies_;
  Executor thread_{"mw-save"};
};

// Every persistent slot of the local ranks takes its box of the checkpoint, or of the snapshots,
// but those whose name fits a pattern of `exclude` ('*': any text). Errors: those of
// checkpoint::Reader, naming tensor and box; of snapshots they are blamed on the machines.
Status RestoreState(const proto::RestoreState& message, CheckpointFiles& files,
                    const std::string& cluster_id, const StateSlots& slots, JobRuntime& runtime,
                    std::shared_ptr<collective::Tls> tls = nullptr);

}  // namespace meshwright::worker
