#include "tests/unit/controller/sim_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

namespace meshwright::controller {

void SimStates::Begin(const proto::LoadMesh& load, int64_t first, bool checked) {
  Mesh mesh;
  mesh.first = first;
  mesh.checked = checked;
  for (const proto::Member& member : load.members) mesh.members.insert(member.worker);
  meshes_.emplace(load.mesh_gen, std::move(mesh));
}

void SimStates::Init(const std::string& worker, MeshGeneration gen) {
  Mesh& mesh = meshes_.at(gen);
  if (mesh.checked) {
    EXPECT_LT(mesh.first, 0) << "generation " << gen << " begins anew, with a checkpoint on record";
  }
  EXPECT_TRUE(mesh.steps.emplace(worker, 0).second) << "the state is filled twice";
}

void SimStates::Run(const std::string& worker, const proto::Launch& launch) {
  Mesh& mesh = meshes_.at(launch.mesh_gen);
  if (!mesh.checked) return;
  const auto state = mesh.steps.find(worker);
  ASSERT_NE(state, mesh.steps.end()) << "a step without a state";
  EXPECT_EQ(launch.first_step, state->second) << "a gap, or a step that runs again";
  state->second = launch.first_step + launch.count;
}

void SimStates::Restore(const std::string& worker, const proto::RestoreState& restore) {
  Mesh& mesh = meshes_.at(restore.mesh_gen);
  const std::string& path = restore.checkpoint.path;
  const size_t slash = path.rfind('/');
  const auto step = checkpoint::StepOfName(path.substr(slash + 1));
  ASSERT_TRUE(step.has_value()) << path;
  EXPECT_TRUE(Has({restore.checkpoint.root, path.substr(0, slash)}, *step)) << path;
  EXPECT_EQ(*step, mesh.first) << "not what is on record";
  EXPECT_TRUE(mesh.steps.emplace(worker, *step).second) << "the state is filled twice";
  ++restores_;
}

std::string SimStates::Save(const std::string& worker, const proto::SaveState& save) {
  const Mesh& mesh = meshes_.at(save.mesh_gen);
  const int64_t step = mesh.steps.at(worker);
  EXPECT_TRUE(save.temporary.starts_with(checkpoint::StepName(step)))
      << save.temporary << " of a state after " << step << " steps";
  checkpoint::Shards shards;
  shards.files.push_back({worker, 1000});
  shards.tensors[worker] = {{ir::DType::kF32, {8}},
                            ir::MemoryKind::kWeights,
                            {{{{0}, {8}}, 0, 64, {checkpoint::Digest{1, 2}}}}};
  return checkpoint::FormatShards(shards);
}

void SimStates::Written(const std::string& worker, MeshGeneration gen, LaunchSeq save) {
  meshes_.at(gen).saves[save.value()].insert(worker);
}

void SimStates::Commit(const proto::CommitCheckpoint& commit) {
  Mesh& mesh = meshes_.at(commit.mesh_gen);
  EXPECT_EQ(mesh.saves[commit.save.value()], mesh.members) << "committed before all have written";
  const auto manifest = checkpoint::ParseManifest(commit.manifest);
  ASSERT_TRUE(manifest.has_value()) << manifest.error();
  std::set<int64_t>& steps = folders_[commit.folder.path];
  steps.insert(manifest->step);
  ++commits_;
  causes_.push_back(manifest->cause);
  while (commit.keep > 0 && steps.size() > static_cast<size_t>(commit.keep)) {
    steps.erase(steps.begin());
  }
}

bool SimStates::Has(const ir::FolderRef& folder, int64_t step) const {
  const auto it = folders_.find(folder.path);
  return it != folders_.end() && it->second.contains(step);
}

}  // namespace meshwright::controller
