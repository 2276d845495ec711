#include "worker/mesh_connections.h"

#include <utility>

namespace meshwright::worker {

void MeshConnections::Expect(const proto::LoadMesh& load) {
  const MutexLock lock(mutex_);
  fabric_ = {load.cluster_id, load.mesh_gen.value(), 0, {}, load.secret};
  for (const proto::Member& member : load.members) fabric_.processes.push_back(member.process_id);
  for (const proto::RankPrograms& rank : load.ranks) {
    const auto index = static_cast<size_t>(rank.rank);
    if (index < load.members.size()) fabric_.process_id = load.members[index].process_id;
  }
}

Status MeshConnections::Open(const std::shared_ptr<collective::Listener>& port, UniqueFd socket) {
  const MutexLock lock(mutex_);
  MW_ASSIGN_OR_RETURN(relay_, collective::MakeRelay(port, fabric_, std::move(socket)));
  return OkStatus();
}

void MeshConnections::Close() {
  std::unique_ptr<collective::Relay> relay;
  const MutexLock lock(mutex_);
  relay = std::move(relay_);
}

}  // namespace meshwright::worker
