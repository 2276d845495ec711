// ActorHosts: the host actors of all jobs on this worker, for one session with the controller: a
// process for each job that has any (worker/actor_host.h), started with the first of them.
//
// Starting and ending processes takes milliseconds and happens on a thread of its own, in the order
// of the messages; messages to actors pass by it. Thread rule: thread-safe. Ownership: what
// `report` uses outlives it. Destroying it ends all processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "actor/owner_loop.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "proto/messages.h"
#include "worker/actor_host.h"

namespace meshwright::worker {

class ActorHosts {
 public:
  ActorHosts(HostActorOptions options, ActorReport report);
  ~ActorHosts();

  void Handle(proto::SpawnActor spawn);
  void Handle(proto::ActorMessage message);
  void Handle(const proto::StopActor& stop);

 private:
  using Order = std::variant<proto::SpawnActor, proto::StopActor>;

  void On(const proto::SpawnActor& spawn);
  void On(const proto::StopActor& stop);
  std::shared_ptr<ActorHost> Find(JobId job);
  std::shared_ptr<ActorHost> Take(JobId job);

  const HostActorOptions options_;
  const ActorReport report_;
  Mutex mutex_;
  std::map<int64_t, std::shared_ptr<ActorHost>> hosts_ MW_GUARDED_BY(mutex_);
  Executor thread_{"mw-actor-hosts"};
  actor::ExecutorScheduler scheduler_{thread_};
  actor::OwnerLoop<Order> loop_;
};

}  // namespace meshwright::worker
