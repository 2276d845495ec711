// What a client's session asks of host actors. They are spawned for its job; a reference may be to
// one of another job, since whoever may ask at all has the token of the cluster.
//
// Answers go to the session's peer, once each; a peer that is gone drops them. Thread rule:
// thread-safe. Ownership: shared with the answers under way; the loop outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "controller/control_loop.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

class SessionActors : public std::enable_shared_from_this<SessionActors> {
 public:
  static constexpr int kMostUnanswered = 256;

  SessionActors(ControlLoop* loop, std::shared_ptr<ClientPeer> peer)
      : loop_(loop), peer_(std::move(peer)) {}

  // The job that the session is of, whose actors it spawns; before, every ask fails.
  void SetJob(JobId job) { job_ = job.value(); }
  void Ask(proto::SessionActorAsk ask);

 private:
  void Start(uint64_t id, proto::SpawnHostActor& ask);
  void Start(uint64_t id, proto::AskHostActor& ask);
  void Start(uint64_t id, proto::StopHostActor& ask);
  void Done(proto::ActorDone done);
  void Failed(uint64_t id, const Status& status);

  ControlLoop* const loop_;
  const std::shared_ptr<ClientPeer> peer_;
  std::atomic<int64_t> job_{0};
  std::atomic<int> unanswered_{0};
};

}  // namespace meshwright::controller
