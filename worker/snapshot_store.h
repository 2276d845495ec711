// SnapshotStore: the memory of the snapshots of a worker's meshes, kept by the worker's daemon, so
// that it outlives the executors which write it.
//
// A mesh's memory comes with the mesh and stays until the controller drops it, or for a time after
// the mesh is over: nobody has asked for it by then. A mesh that never took a snapshot leaves
// nothing. Of a mesh that the worker has no part in it may keep copies. Other processes read slots
// over the data port, by the mesh's secret.
//
// Thread rule: thread-safe. Ownership: owns the memory, and a thread for each reader.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "checkpoint/snapshot.h"
#include "collective/door.h"
#include "proto/messages.h"
#include "worker/slot_servers.h"
#include "worker/snapshot_copier.h"

namespace meshwright::worker {

// Takes an answer to the controller.
using TellUp = std::function<void(proto::UpBody)>;

class SnapshotStore {
 public:
  static constexpr int64_t kGraceMs = 600'000;

  // listener: the worker's data port; null: nobody can read. grace_ms: how long the memory of a
  // mesh that is over waits for the controller.
  explicit SnapshotStore(std::shared_ptr<collective::Listener> listener,
                         int64_t grace_ms = kGraceMs);
  ~SnapshotStore();

  // The mesh takes its snapshots into this memory.
  void Keep(const proto::LoadMesh& load, UniqueFd memory);
  // The mesh is over.
  void Release(MeshGeneration mesh_gen);
  void Drop(const proto::DropSnapshots& drop);
  proto::SnapshotsHeld Held(const proto::QuerySnapshots& query);
  // Of the controller's messages those above, and CopySnapshot, which is answered later; false: it
  // is another one.
  bool Handle(const proto::DownBody& body, const TellUp& tell);
  // Meshes whose memory is kept.
  size_t size();

 private:
  struct Kept {
    JobId job{0};
    MeshGeneration mesh_gen{0};
    collective::DoorName name;
    UniqueFd memory;                                                // until it is opened
    std::optional<checkpoint::SnapshotArea> area;                   // once it has a layout
    std::string layout;                                             // the same as text
    std::map<std::string, std::unique_ptr<SnapshotCopier>> copies;  // by whose boxes they are
    bool asked = false;  // for what it holds, since its mesh was over or it was looked at last
  };
  struct Entry {
    std::shared_ptr<Kept> kept;  // readers hold it, too
    std::unique_ptr<collective::Door> door;
  };
  // The area, if there is one by now.
  static const checkpoint::SnapshotArea* Open(Kept& kept);
  Status OpenDoor(Entry& entry);
  // Drops what nobody has asked for since then, and looks again after the grace.
  void DropLater(MeshGeneration mesh_gen);
  // Of a slot's name.
  std::span<const std::byte> Find(Kept& kept, std::string_view slot);
  // On the thread.
  Status Copy(const proto::CopySnapshot& copy);
  Status KeepCopies(const proto::CopySnapshot& copy) MW_REQUIRES(mutex_);
  void EndReaders(const std::vector<Entry>& gone);

  const std::shared_ptr<collective::Listener> listener_;
  const int64_t grace_ms_;
  Mutex mutex_;
  std::map<MeshGeneration, Entry> kept_ MW_GUARDED_BY(mutex_);
  SlotServers servers_;
  Executor thread_{"mw-snapshots"};
};

// The way of a mesh's memory to the store: mesh and memory become known in any order.
//
// Thread rule: thread-safe. Ownership: the store, if there is one, outlives it.
class SnapshotHandover {
 public:
  explicit SnapshotHandover(SnapshotStore* store) : store_(store) {}
  void Expect(const proto::LoadMesh& load);
  void Give(UniqueFd memory);

 private:
  void HandOver() MW_REQUIRES(mutex_);

  SnapshotStore* const store_;
  Mutex mutex_;
  std::optional<proto::LoadMesh> load_ MW_GUARDED_BY(mutex_);
  UniqueFd memory_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
