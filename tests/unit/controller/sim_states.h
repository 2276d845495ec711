// What the workers of a simulated cluster keep of a mesh's state, as the number of steps that are
// in it, and the folders of checkpoints that all of them see.
//
// Promises checked here:
//   - the state of a generation begins with the checkpoint that is on record for its job, or anew
//   where there is none, on every worker;
//   - from there on no step is left out and none runs twice;
//   - a checkpoint is committed when every member has written its part, and not before;
//   - what is restored is there;
//   - a snapshot that is restored is whole in the memory of workers that live, is of one mesh and
//   one step, is not older than the checkpoint on record, and is on record itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "proto/messages.h"

namespace meshwright::controller {

class SimStates {
 public:
  // first: the steps that are in its first state; below 0: it begins anew. checked: what runs are
  // steps in their order.
  void Begin(const proto::LoadMesh& load, int64_t first, bool checked);
  // What the worker is told of its part.
  void Load(const std::string& worker, const proto::LoadMesh& load);
  void Init(const std::string& worker, MeshGeneration gen);
  void Run(const std::string& worker, const proto::Launch& launch);
  // recorded: the step of a snapshot from which the run is on record to start. Errors: of what is
  // not in memory any more.
  Status Restore(const std::string& worker, const proto::RestoreState& restore,
                 std::optional<int64_t> recorded);
  // What the worker writes.
  std::string Save(const std::string& worker, const proto::SaveState& save);
  void Written(const std::string& worker, MeshGeneration gen, LaunchSeq save);
  void Commit(const proto::CommitCheckpoint& commit);

  // ---- Snapshots, in the memory of a worker's process ----
  // A new process: nothing is left.
  void ForgetMemory(const std::string& worker) { memory_.erase(worker); }
  // Behind the launch's last step. whole: false: it dies while it writes.
  void Snapshot(const std::string& worker, const proto::Launch& launch, bool whole);
  // Errors: the other one has no such snapshot.
  Status Copy(const std::string& worker, const proto::CopySnapshot& copy);
  int64_t copies() const { return copies_; }
  proto::SnapshotsHeld Held(const std::string& worker, const proto::QuerySnapshots& query) const;
  void Drop(const std::string& worker, const proto::DropSnapshots& drop);
  // Meshes of which anyone has something.
  size_t snapshots() const;
  int64_t snapshot_restores() const { return snapshot_restores_; }  // of a worker's part

  bool Has(const ir::FolderRef& folder, int64_t step) const;
  int64_t commits() const { return commits_; }
  // Why each checkpoint was saved, in the order of their commits.
  const std::vector<std::string>& causes() const { return causes_; }
  int64_t restores() const { return restores_; }  // of a worker's part

 private:
  // What a worker has of a mesh: the newest two steps, and which boxes of them.
  struct Memory {
    JobId job{0};
    std::set<int64_t> steps;
    checkpoint::Shards shards;  // digests are those of step 0
    std::map<std::string, std::pair<std::set<int64_t>, checkpoint::Shards>> copies;  // by whose
  };
  static std::string ShardsOf(checkpoint::Shards shards, int64_t step);
  Status RestoreSnapshot(const proto::RestoreState& restore, int64_t& step) const;

  struct Mesh {
    int64_t first = -1;
    bool in_memory = false;  // `first` is of a snapshot
    bool checked = true;
    JobId job{0};
    size_t ranks = 0;
    std::map<std::string, std::vector<proto::RankPrograms>> parts;  // by worker
    std::set<std::string> members;
    std::map<std::string, int64_t> steps;             // by worker; none: it has no state yet
    std::map<uint64_t, std::set<std::string>> saves;  // by launch: who has written its part
  };

  std::map<MeshGeneration, Mesh> meshes_;
  std::map<std::string, std::map<MeshGeneration, Memory>> memory_;  // by worker
  int64_t snapshot_restores_ = 0;
  int64_t copies_ = 0;
  std::map<std::string, std::set<int64_t>> folders_;
  int64_t commits_ = 0;
  std::vector<std::string> causes_;
  int64_t restores_ = 0;
};

}  // namespace meshwright::controller
