// What controller and workers tell each other about snapshots in the memory of workers
// (checkpoint/snapshot.h): between two runs of a job the controller asks who holds what, and when
// the next run has its own, the old ones are dropped.
//
// They are of a worker's daemon and of no mesh: the mesh that wrote them is gone. Thread rule:
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "proto/errors.h"

namespace meshwright::proto {

// With a launch's report: the snapshot behind its last step.
struct SnapshotTaken {
  int64_t step = -1;   // steps that are in it; below 0: none was asked for
  double seconds = 0;  // that it took
  int64_t bytes = 0;   // of one slot
  RuntimeError error;  // not OK: there is none
  friend bool operator==(const SnapshotTaken&, const SnapshotTaken&) = default;
};

// A file of a manifest of snapshots: a slot in a worker's memory.
struct SnapshotSource {
  std::string address;  // of the data listener
  uint64_t process_id = 0;
  MeshGeneration mesh_gen{0};  // that wrote it
  std::string secret;          // of that mesh
  std::string slot;            // its name there
  friend bool operator==(const SnapshotSource&, const SnapshotSource&) = default;
};

// ---- Down ---------------------------------------------------------------------------------------

// Answered by a SnapshotsHeld with the same number.
struct QuerySnapshots {
  JobId job{0};
  uint64_t query = 0;
  friend bool operator==(const QuerySnapshots&, const QuerySnapshots&) = default;
};

// Snapshots of the job, of meshes before this one, are not needed any more.
struct DropSnapshots {
  JobId job{0};
  MeshGeneration before{0};
  friend bool operator==(const DropSnapshots&, const DropSnapshots&) = default;
};

// Boxes of a member's snapshot are to be copied to this worker's memory, which is told by a
// SnapshotCopied. A worker that has no part in the mesh gets to know it by this.
struct SnapshotPart {
  std::string worker;  // whose
  std::string address;
  uint64_t process_id = 0;
  std::vector<std::string> boxes;  // tensor and box (checkpoint/assign.h: StateBox::key)
  friend bool operator==(const SnapshotPart&, const SnapshotPart&) = default;
};
struct CopySnapshot {
  MeshGeneration mesh_gen{0};
  int64_t step = 0;
  std::vector<SnapshotPart> parts;
  // For who has no part: whose it is, and by which name others read it there.
  JobId job{0};
  std::string cluster_id = {};
  uint64_t process_id = 0;
  std::string secret = {};
  friend bool operator==(const CopySnapshot&, const CopySnapshot&) = default;
};

// ---- Up -----------------------------------------------------------------------------------------

struct HeldSlot {
  MeshGeneration mesh_gen{0};
  int64_t step = 0;
  std::string slot;    // its name
  std::string secret;  // of the mesh
  std::string shards;  // boxes and digests (checkpoint/manifest.h: FormatShards), in one file
  friend bool operator==(const HeldSlot&, const HeldSlot&) = default;
};

struct SnapshotCopied {
  MeshGeneration mesh_gen{0};
  int64_t step = 0;
  RuntimeError error;
  friend bool operator==(const SnapshotCopied&, const SnapshotCopied&) = default;
};

// Whole slots only.
struct SnapshotsHeld {
  JobId job{0};
  uint64_t query = 0;
  std::vector<HeldSlot> slots;
  friend bool operator==(const SnapshotsHeld&, const SnapshotsHeld&) = default;
};

}  // namespace meshwright::proto
