#include "tests/unit/controller/sim_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

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

Status SimStates::Restore(const std::string& worker, const proto::RestoreState& restore,
                          std::optional<int64_t> recorded) {
  Mesh& mesh = meshes_.at(restore.mesh_gen);
  std::optional<int64_t> step;
  if (restore.manifest.empty()) {
    const std::string& path = restore.checkpoint.path;
    const size_t slash = path.rfind('/');
    step = checkpoint::StepOfName(path.substr(slash + 1));
    EXPECT_TRUE(step.has_value()) << path;
    EXPECT_TRUE(Has({restore.checkpoint.root, path.substr(0, slash)}, step.value_or(-1))) << path;
    EXPECT_FALSE(mesh.in_memory) << "members start from two states";
    ++restores_;
  } else {
    step = 0;
    MW_TRY(RestoreSnapshot(restore, *step));
    EXPECT_GE(*step, mesh.first) << "a checkpoint on record is newer";
    EXPECT_TRUE(mesh.steps.empty() || mesh.in_memory) << "members start from two states";
    EXPECT_EQ(recorded, step) << "not what is on record";
    if (!std::exchange(mesh.in_memory, true)) mesh.first = *step;
    ++snapshot_restores_;
  }
  EXPECT_EQ(step, mesh.first) << "not what is on record";
  EXPECT_TRUE(mesh.steps.emplace(worker, *step).second) << "the state is filled twice";
  return OkStatus();
}

// ---- Snapshots ----

// Rows of tensor "s", which all ranks split, by rank; tensor "r" is whole on every rank.
constexpr int64_t kRowsOfState = 840;

void SimStates::Load(const std::string& worker, const proto::LoadMesh& load) {
  Mesh& mesh = meshes_.at(load.mesh_gen);
  mesh.job = load.job;
  mesh.ranks = load.members.size();
  mesh.parts[worker] = load.ranks;
}

void SimStates::Snapshot(const std::string& worker, const proto::Launch& launch, bool whole) {
  const Mesh& mesh = meshes_.at(launch.mesh_gen);
  Memory& memory = memory_[worker][launch.mesh_gen];
  if (memory.shards.files.empty()) {
    memory.job = mesh.job;
    const auto ranks = static_cast<int64_t>(mesh.ranks);
    int64_t begin = 0;
    for (const proto::RankPrograms& part : mesh.parts.at(worker)) {
      for (const std::string& name : part.snapshot_slots) {
        const int64_t rows = name == "r" ? 1 : kRowsOfState / ranks;
        const int64_t first = name == "r" ? 0 : part.rank * rows;
        checkpoint::StoredTensor& tensor = memory.shards.tensors[name];
        tensor.type = {ir::DType::kF32, {name == "r" ? 1 : kRowsOfState}};
        tensor.boxes.push_back(
            {{{first}, {rows}}, 0, begin, {checkpoint::Digest{0, static_cast<uint64_t>(first)}}});
        begin += rows * 4;
      }
    }
    memory.shards.files.push_back({worker, begin});
  }
  // The older slot is wiped first.
  if (memory.steps.size() == 2) memory.steps.erase(memory.steps.begin());
  if (whole) memory.steps.insert(launch.first_step + launch.count);
}

std::string SimStates::ShardsOf(checkpoint::Shards shards, int64_t step) {
  for (auto& [name, tensor] : shards.tensors) {
    for (checkpoint::StoredBox& box : tensor.boxes) {
      box.digests[0].high = static_cast<uint64_t>(step);
    }
  }
  return checkpoint::FormatShards(shards);
}

proto::SnapshotsHeld SimStates::Held(const std::string& worker,
                                     const proto::QuerySnapshots& query) const {
  proto::SnapshotsHeld held{query.job, query.query, {}};
  const auto of_worker = memory_.find(worker);
  if (of_worker == memory_.end()) return held;
  for (const auto& [gen, memory] : of_worker->second) {
    if (memory.job != query.job) continue;
    for (const int64_t step : memory.steps) {
      held.slots.push_back(
          {gen, step, std::to_string(step), worker, ShardsOf(memory.shards, step)});
    }
    for (const auto& [from, copy] : memory.copies) {
      for (const int64_t step : copy.first) {
        held.slots.push_back({gen, step, "of/" + from + "/" + std::to_string(step), worker,
                              ShardsOf(copy.second, step)});
      }
    }
  }
  return held;
}

Status SimStates::Copy(const std::string& worker, const proto::CopySnapshot& copy) {
  for (const proto::SnapshotPart& part : copy.parts) {
    EXPECT_NE(part.worker, worker) << "a copy beside the original";
    const auto from = memory_.find(part.worker);
    if (from == memory_.end() || !from->second.contains(copy.mesh_gen) ||
        !from->second.at(copy.mesh_gen).steps.contains(copy.step)) {
      return Unavailable("worker " + part.worker + " has no such snapshot");
    }
    Memory& memory = memory_[worker][copy.mesh_gen];
    memory.job = meshes_.at(copy.mesh_gen).job;
    auto& [steps, shards] = memory.copies[part.worker];
    if (shards.files.empty()) {
      shards = from->second.at(copy.mesh_gen).shards;
      const bool has_r = std::find(part.boxes.begin(), part.boxes.end(), "r") != part.boxes.end();
      if (!has_r) shards.tensors.erase("r");
      const auto rows = kRowsOfState / static_cast<int64_t>(meshes_.at(copy.mesh_gen).ranks);
      std::erase_if(shards.tensors.at("s").boxes, [&](const checkpoint::StoredBox& box) {
        const std::string key = "s" + std::to_string(box.box.offset[0] / rows);
        return std::find(part.boxes.begin(), part.boxes.end(), key) == part.boxes.end();
      });
    }
    EXPECT_EQ(part.boxes.size(), shards.tensors.at("s").boxes.size() + shards.tensors.count("r"));
    if (steps.size() == 2) steps.erase(steps.begin());
    steps.insert(copy.step);
    ++copies_;
  }
  return OkStatus();
}

void SimStates::Drop(const std::string& worker, const proto::DropSnapshots& drop) {
  std::erase_if(memory_[worker], [&](const auto& each) {
    return each.second.job == drop.job && each.first < drop.before;
  });
}

size_t SimStates::snapshots() const {
  size_t count = 0;
  for (const auto& [worker, memories] : memory_) count += memories.size();
  return count;
}

// As a worker would: what it reads has the digests of the manifest, or it is none.
Status SimStates::RestoreSnapshot(const proto::RestoreState& restore, int64_t& step) const {
  const auto manifest = checkpoint::ParseManifest(restore.manifest);
  EXPECT_TRUE(manifest.has_value()) << manifest.error();
  if (!manifest.has_value()) return manifest.error();
  EXPECT_EQ(manifest->files.size(), restore.sources.size());
  EXPECT_EQ(manifest->tensors.size(), 2u) << "a tensor is missing";
  step = manifest->step;
  for (const proto::SnapshotSource& source : restore.sources) {
    EXPECT_EQ(source.mesh_gen, restore.sources[0].mesh_gen) << "of two meshes";
    const bool own = source.slot == std::to_string(step);
    EXPECT_TRUE(own || source.slot.ends_with("/" + std::to_string(step))) << "of two steps";
    // Its secret is the name of the worker.
    const auto worker = memory_.find(source.secret);
    const Memory* const memory = worker != memory_.end() && worker->second.contains(source.mesh_gen)
                                     ? &worker->second.at(source.mesh_gen)
                                     : nullptr;
    bool there = memory != nullptr && own && memory->steps.contains(step);
    for (const auto& [from, copy] :
         memory == nullptr ? decltype(memory->copies){} : memory->copies) {
      there = there || (source.slot == "of/" + from + "/" + std::to_string(step) &&
                        copy.first.contains(step));
    }
    if (!there) {
      return DataLoss("worker " + source.secret + " holds it no more").WithBlame(Blame::kInfra);
    }
  }
  for (const auto& [name, tensor] : manifest->tensors) {
    for (const checkpoint::StoredBox& box : tensor.boxes) {
      EXPECT_EQ(box.digests.at(0).high, static_cast<uint64_t>(step)) << "a torn slot";
    }
  }
  return OkStatus();
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
