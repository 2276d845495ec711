// HeldMeshes: what the meshes of a worker say, to the session that there is, or kept until there is
// one again.
//
// A mesh of a session that ends is held for its grace time, or the worker's where that is shorter,
// if it can be (worker/mesh_log.h). In the next session it goes on when the controller says so:
// then what it was told and what came of it is said first, in one message. Thread rule:
// thread-safe; what `send` does is done under the lock, and must not block. Ownership: the meshes
// themselves are the agent's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "worker/mesh_log.h"

namespace meshwright::worker {

class HeldMeshes {
 public:
  using Send = std::function<void(proto::UpBody)>;

  explicit HeldMeshes(int64_t longest_ms) : longest_ms_(longest_ms) {}

  void Open(const proto::LoadMesh& load, Send send);
  void NoteTold(MeshGeneration gen, const proto::DownBody& told);
  void Say(MeshGeneration gen, proto::UpBody said);
  // Nothing of it is left. One that is held stays listed, until its end was said.
  void Close(MeshGeneration gen);

  // The session has ended. Returns the meshes that are not held: they are forgotten here.
  std::vector<MeshGeneration> Part(int64_t now_ms);
  // For Register.
  std::vector<proto::HeldMesh> Listed() const;
  // Whether a mesh is held and has not ended by itself.
  bool any() const;
  // Those whose time is over: they are forgotten here.
  std::vector<MeshGeneration> Expire(int64_t now_ms);
  // In the new session those of `kept` go on; returns the others, which are forgotten here.
  std::vector<MeshGeneration> Resume(const std::vector<MeshGeneration>& kept, const Send& send);

 private:
  struct Held {
    explicit Held(const proto::LoadMesh& load) : log(load) {}
    MeshLog log;
    Send send;             // null: there is no session
    int64_t since_ms = 0;  // it has none
    bool closed = false;
  };

  template <typename Which>
  std::vector<MeshGeneration> Take(const Which& which) MW_REQUIRES(mutex_);

  const int64_t longest_ms_;
  mutable Mutex mutex_;
  std::map<MeshGeneration, Held> meshes_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
