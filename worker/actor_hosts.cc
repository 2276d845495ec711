#include "worker/actor_hosts.h"

#include <utility>

#include "actor/address.h"

namespace meshwright::worker {
namespace {

// The controller has no more actors than this under way to begin.
constexpr size_t kOrders = 8192;

proto::ActorEvent Failed(const proto::SpawnActor& spawn, const Status& why) {
  return {spawn.job,  spawn.actor,  spawn.generation, proto::ActorEventKind::kFailed,
          why.code(), why.message()};
}

}  // namespace

ActorHosts::ActorHosts(HostActorOptions options, ActorReport report)
    : options_(std::move(options)),
      report_(std::move(report)),
      loop_(scheduler_, kOrders,
            [this](Order order) { std::visit([this](const auto& body) { On(body); }, order); }) {}

ActorHosts::~ActorHosts() {
  (void)loop_.Close();
  // On the thread that started the processes: they end before it does.
  (void)thread_.Post([this] {
    std::map<int64_t, std::shared_ptr<ActorHost>> all;
    {
      const MutexLock lock(mutex_);
      all.swap(hosts_);
    }
    for (const auto& [job, host] : all) host->BeginEnd();
  });
  thread_.Stop();
}

std::shared_ptr<ActorHost> ActorHosts::Find(JobId job) {
  const MutexLock lock(mutex_);
  const auto it = hosts_.find(job.value());
  return it == hosts_.end() ? nullptr : it->second;
}

std::shared_ptr<ActorHost> ActorHosts::Take(JobId job) {
  const MutexLock lock(mutex_);
  const auto it = hosts_.find(job.value());
  if (it == hosts_.end()) return nullptr;
  std::shared_ptr<ActorHost> host = std::move(it->second);
  hosts_.erase(it);
  return host;
}

void ActorHosts::Handle(proto::SpawnActor spawn) {
  const proto::ActorEvent refused =
      Failed(spawn, ResourceExhausted("too many actors wait to be started on this worker"));
  Order order(std::move(spawn));
  if (loop_.Offer(std::move(order)) != actor::Offered::kTaken) report_(refused);
}

void ActorHosts::Handle(proto::ActorMessage message) {
  const std::shared_ptr<ActorHost> host = Find(message.job);
  if (host) return host->Message(std::move(message));
  const actor::Address address{actor::PlaceId(0), actor::ActorId(message.actor),
                               actor::ActorGeneration(message.generation)};
  const Status gone = actor::GoneError(address, actor::ActorGeneration(0));
  report_(proto::ActorReply{message.ask, gone.code(), gone.message(), {}});
}

// Behind the spawns: an actor may be stopped before it has begun.
void ActorHosts::Handle(const proto::StopActor& stop) { (void)loop_.Offer(Order(stop)); }

void ActorHosts::On(const proto::SpawnActor& spawn) {
  std::shared_ptr<ActorHost> host = Find(spawn.job);
  if (host == nullptr || host->ended()) {
    host.reset();
    (void)Take(spawn.job);
    Result<std::unique_ptr<ActorHost>> started = ActorHost::Start(spawn.job, options_, report_);
    if (!started.has_value()) return report_(Failed(spawn, started.error()));
    host = std::move(*started);
    const MutexLock lock(mutex_);
    hosts_[spawn.job.value()] = host;
  }
  host->Spawn(spawn);
}

void ActorHosts::On(const proto::StopActor& stop) {
  if (stop.actor == 0) {
    (void)Take(stop.job);
  } else if (const std::shared_ptr<ActorHost> host = Find(stop.job)) {
    host->Stop(stop);
  }
}

}  // namespace meshwright::worker
