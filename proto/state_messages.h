// What controller and workers tell each other about the state of a mesh that is saved and restored.
//
// A save: SaveState comes in the order of the launches, and its LaunchDone says that the state is
// copied; StateSaved says that the files are written and durable. When all members have said so,
// one of them makes the folder a checkpoint, as CommitCheckpoint says. RestoreState comes in order,
// too, and takes the place of the launch that initialises the state. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "ir/checkpoint_spec.h"
#include "proto/errors.h"
#include "proto/snapshot_messages.h"

namespace meshwright::proto {

struct RankTiles {
  int32_t rank = 0;
  std::vector<std::string> slots;
  friend bool operator==(const RankTiles&, const RankTiles&) = default;
};

// ---- Down ---------------------------------------------------------------------------------------

struct SaveState {
  MeshGeneration mesh_gen{0};
  LaunchSeq launch_seq{0};
  ir::FolderRef folder;          // of the job's checkpoints
  std::string temporary;         // the name below it that is written to
  std::vector<RankTiles> ranks;  // of this worker
  friend bool operator==(const SaveState&, const SaveState&) = default;
};

struct RestoreState {
  MeshGeneration mesh_gen{0};
  LaunchSeq launch_seq{0};
  ir::FolderRef checkpoint;          // of one step
  std::vector<std::string> exclude;  // patterns of tensors that are not restored
  // Of snapshots instead: the text of their manifest, and where each of its files is.
  std::string manifest = {};
  std::vector<SnapshotSource> sources = {};
  friend bool operator==(const RestoreState&, const RestoreState&) = default;
};

struct CommitCheckpoint {
  MeshGeneration mesh_gen{0};
  LaunchSeq save{0};  // launch_seq of its SaveState
  ir::FolderRef folder;
  std::string temporary;
  std::string manifest;  // text
  std::string job;       // the request, for who has the folder alone
  int64_t keep = 0;      // newest checkpoints of the folder; 0: all
  // Weights are written beside it in this type, "f32"; empty: they are not.
  std::string export_dtype = {};
  friend bool operator==(const CommitCheckpoint&, const CommitCheckpoint&) = default;
};

// ---- Up -----------------------------------------------------------------------------------------

struct StateSaved {
  MeshGeneration mesh_gen{0};
  LaunchSeq save{0};
  RuntimeError error;
  std::string shards;       // what was written (checkpoint/manifest.h: FormatShards)
  double copy_seconds = 0;  // the job stood still for it
  double write_seconds = 0;
  friend bool operator==(const StateSaved&, const StateSaved&) = default;
};

struct CheckpointCommitted {
  MeshGeneration mesh_gen{0};
  LaunchSeq save{0};
  RuntimeError error;
  friend bool operator==(const CheckpointCommitted&, const CheckpointCommitted&) = default;
};

}  // namespace meshwright::proto
