// MeshConnections: the connections of peers to a mesh that runs in an executor process. They come
// to the worker's one port and are handed on to the process (collective/relay.h).
//
// Thread rule: thread-safe. Ownership: owns the relay.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "collective/relay.h"
#include "proto/messages.h"

namespace meshwright::worker {

class MeshConnections {
 public:
  // Who the mesh and its members are.
  void Expect(const proto::LoadMesh& load);
  // The mesh's fabric is there. Errors: MakeRelay's.
  Status Open(const std::shared_ptr<collective::Listener>& port, UniqueFd socket);
  // No connection is handed on any more.
  void Close();

 private:
  Mutex mutex_;
  collective::RelayedFabric fabric_ MW_GUARDED_BY(mutex_);
  std::unique_ptr<collective::Relay> relay_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
