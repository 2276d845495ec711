#include "worker/held_meshes.h"

#include <algorithm>
#include <utility>

namespace meshwright::worker {

void HeldMeshes::Open(const proto::LoadMesh& load, Send send) {
  const MutexLock lock(mutex_);
  const auto [it, made] = meshes_.try_emplace(load.mesh_gen, load);
  it->second.send = std::move(send);
}

void HeldMeshes::NoteTold(MeshGeneration gen, const proto::DownBody& told) {
  const MutexLock lock(mutex_);
  const auto it = meshes_.find(gen);
  if (it != meshes_.end()) it->second.log.Note(told);
}

void HeldMeshes::Say(MeshGeneration gen, proto::UpBody said) {
  const MutexLock lock(mutex_);
  const auto it = meshes_.find(gen);
  if (it == meshes_.end()) return;
  it->second.log.Note(said);
  if (it->second.send) it->second.send(std::move(said));
}

void HeldMeshes::Close(MeshGeneration gen) {
  const MutexLock lock(mutex_);
  const auto it = meshes_.find(gen);
  if (it == meshes_.end()) return;
  it->second.closed = true;
  if (it->second.send) meshes_.erase(it);
}

template <typename Which>
std::vector<MeshGeneration> HeldMeshes::Take(const Which& which) {
  std::vector<MeshGeneration> taken;
  for (auto it = meshes_.begin(); it != meshes_.end();) {
    if (!which(it->first, it->second)) {
      ++it;
      continue;
    }
    taken.push_back(it->first);
    it = meshes_.erase(it);
  }
  return taken;
}

std::vector<MeshGeneration> HeldMeshes::Part(int64_t now_ms) {
  const MutexLock lock(mutex_);
  for (auto& [gen, held] : meshes_) {
    if (held.send) held.since_ms = now_ms;
    held.send = nullptr;
  }
  return Take([&](MeshGeneration, const Held& held) {
    return !held.log.can_be_held() || std::min(held.log.grace_ms(), longest_ms_) <= 0;
  });
}

std::vector<proto::HeldMesh> HeldMeshes::Listed() const {
  const MutexLock lock(mutex_);
  std::vector<proto::HeldMesh> listed;
  for (const auto& [gen, held] : meshes_) listed.push_back({gen, held.log.job()});
  return listed;
}

bool HeldMeshes::any() const {
  const MutexLock lock(mutex_);
  return std::any_of(meshes_.begin(), meshes_.end(),
                     [](const auto& each) { return !each.second.closed; });
}

std::vector<MeshGeneration> HeldMeshes::Expire(int64_t now_ms) {
  const MutexLock lock(mutex_);
  return Take([&](MeshGeneration, const Held& held) {
    return !held.send && now_ms - held.since_ms >= std::min(held.log.grace_ms(), longest_ms_);
  });
}

std::vector<MeshGeneration> HeldMeshes::Resume(const std::vector<MeshGeneration>& kept,
                                               const Send& send) {
  const MutexLock lock(mutex_);
  std::vector<MeshGeneration> dropped = Take([&](MeshGeneration gen, const Held&) {
    return std::find(kept.begin(), kept.end(), gen) == kept.end();
  });
  for (auto& [gen, held] : meshes_) {
    held.send = send;
    send(held.log.Resume());
    for (proto::UpBody& body : held.log.Rest()) send(std::move(body));
  }
  (void)Take([](MeshGeneration, const Held& held) { return held.closed; });
  return dropped;
}

}  // namespace meshwright::worker
