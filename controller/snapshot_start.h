// SnapshotStart: the newest state of a job that is whole in the memory of workers, put together of
// the slots that they say they hold.
//
// Slots belong together when one mesh wrote them behind the same step. What is taken is the largest
// step whose slots have every tensor of the state as an exact cover; a box that several hold must
// have the same digests everywhere, else nobody knows which is right.
//
// Thread rule: values, pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "checkpoint/manifest.h"
#include "proto/messages.h"

namespace meshwright::controller {

// What a worker holds, and where it is read.
struct SnapshotHolder {
  std::string worker;
  std::string address;
  uint64_t process_id = 0;
  std::vector<proto::HeldSlot> slots;
};

// Which mesh wrote it, behind how many steps.
struct SnapshotId {
  int64_t step = -1;
  MeshGeneration mesh_gen{0};
  friend auto operator<=>(const SnapshotId&, const SnapshotId&) = default;
};

// A slot, and whose it is.
struct SnapshotFile {
  std::string worker;
  proto::SnapshotSource source;
  checkpoint::StoredFile file;
};
struct SnapshotStart {
  SnapshotId id;
  std::vector<SnapshotFile> files;
  // By tensor: `boxes` are a cover, and `holders` by box the files that have it. A box's own `file`
  // and `begin_bytes` are those of its first holder.
  struct Holder {
    size_t file = 0;
    int64_t begin_bytes = 0;
  };
  struct Tensor {
    checkpoint::StoredTensor stored;
    std::vector<std::vector<Holder>> holders;
  };
  std::map<std::string, Tensor> tensors;
};

struct SnapshotChoice {
  std::optional<SnapshotStart> start;
  std::vector<std::string> notes;  // why newer ones were not taken
};
// tensors: names of all of the state. allowed: whether a run may start there.
SnapshotChoice ChooseSnapshot(const std::vector<SnapshotHolder>& holders,
                              const std::set<std::string>& tensors,
                              const std::function<bool(const SnapshotId&)>& allowed);

// What a worker is told: every box from the worker itself, where it holds it, else from one of its
// holders, by hash.
struct SnapshotFiles {
  std::string manifest;
  std::vector<proto::SnapshotSource> sources;
};
SnapshotFiles FilesFor(const SnapshotStart& start, const std::string& worker);

}  // namespace meshwright::controller
