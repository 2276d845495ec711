// What the workers of a simulated cluster keep of a mesh's state, as the number of steps that are
// in it, and the folders of checkpoints that all of them see.
//
// Promises checked here:
//   - the state of a generation begins with the checkpoint that is on record for its job, or anew
//   where there is none, on every worker;
//   - from there on no step is left out and none runs twice;
//   - a checkpoint is committed when every member has written its part, and not before;
//   - what is restored is there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/messages.h"

namespace meshwright::controller {

class SimStates {
 public:
  // first: the steps that are in its first state; below 0: it begins anew. checked: what runs are
  // steps in their order.
  void Begin(const proto::LoadMesh& load, int64_t first, bool checked);
  void Init(const std::string& worker, MeshGeneration gen);
  void Run(const std::string& worker, const proto::Launch& launch);
  void Restore(const std::string& worker, const proto::RestoreState& restore);
  // What the worker writes.
  std::string Save(const std::string& worker, const proto::SaveState& save);
  void Written(const std::string& worker, MeshGeneration gen, LaunchSeq save);
  void Commit(const proto::CommitCheckpoint& commit);

  bool Has(const ir::FolderRef& folder, int64_t step) const;
  int64_t commits() const { return commits_; }
  // Why each checkpoint was saved, in the order of their commits.
  const std::vector<std::string>& causes() const { return causes_; }
  int64_t restores() const { return restores_; }  // of a worker's part

 private:
  struct Mesh {
    int64_t first = -1;
    bool checked = true;
    std::set<std::string> members;
    std::map<std::string, int64_t> steps;             // by worker; none: it has no state yet
    std::map<uint64_t, std::set<std::string>> saves;  // by launch: who has written its part
  };

  std::map<MeshGeneration, Mesh> meshes_;
  std::map<std::string, std::set<int64_t>> folders_;
  int64_t commits_ = 0;
  std::vector<std::string> causes_;
  int64_t restores_ = 0;
};

}  // namespace meshwright::controller
