// LiveMeshes: the meshes whose members have not all let go yet, by generation.
//
// A generation is used once, in this life of the controller and in those before it. Thread rule:
// the core's thread. Ownership: holds the meshes; a pointer to one is valid until it is erased.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "controller/membership.h"
#include "controller/mesh_life.h"

namespace meshwright::controller {

class LiveMeshes {
 public:
  explicit LiveMeshes(uint64_t next_gen) : next_gen_(next_gen) {}

  MeshGeneration NewGeneration() { return MeshGeneration(next_gen_++); }
  // What has to be on disk before anyone is told of the newest generation.
  uint64_t next_gen() const { return next_gen_; }
  // REQUIRES a new generation.
  MeshLife& Add(MeshLife mesh);
  MeshLife* Find(MeshGeneration gen);  // null: there is none
  const MeshLife* Find(MeshGeneration gen) const;
  // REQUIRES that there is one.
  MeshLife& At(MeshGeneration gen);
  const MeshLife& At(MeshGeneration gen) const;
  void Erase(MeshGeneration gen) { meshes_.erase(gen); }

  const std::map<MeshGeneration, MeshLife>& all() const { return meshes_; }
  // Those that there are now; steps may erase some of them.
  std::vector<MeshGeneration> Generations() const;
  std::set<JobId> Jobs() const;
  // Devices that come back in a moment: a job may have others, in another mesh.
  std::vector<EndingDevice> EndingDevices() const;

 private:
  uint64_t next_gen_;
  std::map<MeshGeneration, MeshLife> meshes_;
};

}  // namespace meshwright::controller
