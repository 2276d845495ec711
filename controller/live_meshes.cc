#include "controller/live_meshes.h"

#include <utility>

#include "base/check.h"

namespace meshwright::controller {

MeshLife& LiveMeshes::Add(MeshLife mesh) {
  const MeshGeneration gen = mesh.gen();
  const auto [it, is_new] = meshes_.emplace(gen, std::move(mesh));
  MW_CHECK(is_new && gen.value() < next_gen_) << "mesh generation " << gen << " is used twice";
  return it->second;
}

MeshLife* LiveMeshes::Find(MeshGeneration gen) {
  const auto it = meshes_.find(gen);
  return it == meshes_.end() ? nullptr : &it->second;
}

const MeshLife* LiveMeshes::Find(MeshGeneration gen) const {
  const auto it = meshes_.find(gen);
  return it == meshes_.end() ? nullptr : &it->second;
}

MeshLife& LiveMeshes::At(MeshGeneration gen) {
  MeshLife* const mesh = Find(gen);
  MW_CHECK(mesh != nullptr) << "there is no mesh of generation " << gen;
  return *mesh;
}

const MeshLife& LiveMeshes::At(MeshGeneration gen) const {
  const MeshLife* const mesh = Find(gen);
  MW_CHECK(mesh != nullptr) << "there is no mesh of generation " << gen;
  return *mesh;
}

std::vector<MeshGeneration> LiveMeshes::Generations() const {
  std::vector<MeshGeneration> gens;
  for (const auto& [gen, mesh] : meshes_) gens.push_back(gen);
  return gens;
}

std::set<JobId> LiveMeshes::Jobs() const {
  std::set<JobId> jobs;
  for (const auto& [gen, mesh] : meshes_) jobs.insert(mesh.job());
  return jobs;
}

std::vector<EndingDevice> LiveMeshes::EndingDevices() const {
  std::vector<EndingDevice> devices;
  for (const auto& [gen, mesh] : meshes_) {
    if (!mesh.state().IsEnding()) continue;
    for (const MeshMember& member : mesh.state().members) {
      if (member.freed) continue;
      for (const int device : member.local_devices) {
        devices.push_back({member.worker, device, mesh.job()});
      }
    }
  }
  return devices;
}

}  // namespace meshwright::controller
