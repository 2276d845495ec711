// What a client's session asks of host actors. They are spawned for its job; a reference may be to
// one of another job, since whoever may ask at all has the token of the cluster.
//
// Answers go to the session's peer, once each; a peer that is gone drops them. A watch ends with
// its first news, or with the session. Thread rule: thread-safe. Ownership: shared with the answers
// under way; the loop outlives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "controller/control_loop.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

class SessionActors : public std::enable_shared_from_this<SessionActors> {
 public:
  SessionActors(ControlLoop* loop, std::shared_ptr<ClientPeer> peer)
      : loop_(loop), peer_(std::move(peer)) {}

  // The job that the session is of, whose actors it spawns; before, every ask fails.
  void SetJob(JobId job) { job_ = job.value(); }
  void Ask(proto::SessionActorAsk ask);
  // The session is over: nobody hears of its watches.
  void End();

 private:
  void Start(uint64_t id, proto::SpawnHostActor& ask);
  void Start(uint64_t id, proto::AskHostActor& ask);
  void Start(uint64_t id, proto::StopHostActor& ask);
  void Start(uint64_t id, proto::WatchHostActor& ask);
  void OnNews(uint64_t id, const ActorAnswer& answer);
  void Done(proto::ActorDone done);
  void Failed(uint64_t id, const Status& status);
  void Refuse(uint64_t id, const Status& status);

  ControlLoop* const loop_;
  const std::shared_ptr<ClientPeer> peer_;
  std::atomic<int64_t> job_{0};
  std::atomic<size_t> unanswered_{0};  // without watches
  Mutex mutex_;
  // By the client's number; 0: not yet known.
  std::map<uint64_t, CallId> watches_ MW_GUARDED_BY(mutex_);
  bool ended_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::controller
