// ActorTable: the host actors of all jobs: where each one is, in which life, who waits for it.
//
//   starting --started--> running --died--> waiting --due--> starting (next generation)
//   and from any of them to its end: stopped, given up, its job's end
//
// An actor is placed on the READY worker that has its type and the fewest actors. When it dies,
// with its process, its worker or by itself, the supervision table says whether it is made again,
// after a backoff, where there is a place then. A spawn whose first life cannot begin is answered
// so and leaves nothing.
//
// An ask completes exactly once: with the reply, or because its deadline passed, its actor died or
// was stopped, its life had been followed by another one (gone), or the controller stops. A worker
// holds at most `credits` messages that it has not replied to. Deadlines are looked at with each
// Tick; the actor's own process keeps them to the millisecond.
//
// Sans-I/O, as the core that owns it: calls return what is to be done, in order.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actor/supervision.h"
#include "controller/actor_events.h"
#include "controller/states.h"
#include "controller/unreplied.h"
#include "proto/messages.h"

namespace meshwright::controller {

enum class ActorPhase : uint8_t { kStarting, kRunning, kWaiting };
enum class ActorStep : uint8_t { kStarted, kDied, kDue };
std::span<const Transition<ActorPhase, ActorStep>> ActorPhases();

struct ActorTableOptions {
  uint64_t first_id = 1;  // ids are never used again, also after a restart of the controller
  // Messages to one worker that have not been replied to, and what they may bring together: less
  // than its stream can hold (controller/grpc/stream_writer.h), whoever else speaks to it.
  size_t credits = 256;
  int64_t credit_bytes = int64_t{64} << 20;
  size_t max_actors = 4096;
  int64_t start_deadline_ms = 60'000;  // for the process and the object
  int64_t place_deadline_ms = 60'000;  // how long an actor waits for a worker to run on
  actor::SupervisionTable supervision = actor::DefaultSupervision();
};

// The READY workers and the types that each of them has.
using ActorWorkers = std::map<std::string, std::vector<std::string>>;

struct ActorSend {
  std::string worker;
  JobId job;
  proto::DownBody body;
};
struct ActorLine {  // for the job's log
  JobId job;
  std::string line;
};
using ActorEffects = std::vector<std::variant<ActorSend, ActorAnswer, ActorLine>>;

class ActorTable {
 public:
  explicit ActorTable(ActorTableOptions options);

  // REQUIRES a job that has not ended. Errors in the answer: kNotFound naming the types that there
  // are; kUnavailable for a worker that is not ready; kResourceExhausted; those of the actor.
  ActorEffects Spawn(const SpawnActorCall& call, const ActorWorkers& workers, int64_t now_ms);
  // Errors in the answer: those of actor/address.h; kInvalidArgument for a payload that is too
  // large; the actor's.
  ActorEffects Ask(const AskActorCall& call, int64_t now_ms);
  ActorEffects Stop(const StopActorCall& call);
  ActorEffects Watch(const WatchActorCall& call);
  void Unwatch(CallId call);

  ActorEffects OnReply(const std::string& worker, const proto::ActorReply& reply);
  ActorEffects OnEvent(const std::string& worker, const proto::ActorEvent& event, int64_t now_ms);
  // Its session has ended: its actors are dead, and what it has not replied to never will be.
  ActorEffects WorkerGone(const std::string& worker, const std::string& why, int64_t now_ms);
  ActorEffects JobEnded(JobId job);
  ActorEffects Tick(const ActorWorkers& workers, int64_t now_ms);
  // The controller stops: everybody is answered.
  ActorEffects Shutdown();

  size_t actors() const { return actors_.size(); }
  size_t asks() const { return asks_.size(); }
  size_t unreplied(const std::string& worker) const;
  int64_t stale() const { return stale_; }  // messages of workers that nobody waited for
  // For tests, after every call.
  Status CheckInvariants() const;

 private:
  struct Entry {
    JobId job{0};
    std::string type;
    std::string args;
    std::string wanted;  // worker; empty: any
    std::string worker;  // of this life; empty while waiting
    uint64_t generation = 1;
    Status why;  // that the life before ended
    ActorPhase phase = ActorPhase::kStarting;
    int64_t due_ms = 0;  // waiting: for its next life; starting: to have started
    int64_t waiting_since_ms = 0;
    CallId spawn{0};             // who waits for its first life
    std::set<uint64_t> watches;  // calls
  };
  struct PendingAsk {
    CallId call{0};
    uint64_t actor = 0;
    uint64_t generation = 0;
    std::string worker;
    int64_t due_ms = 0;
    int64_t deadline_ms = 0;
  };

  // Where an actor of this type goes. Errors: as of Spawn.
  Result<std::string> PlaceOf(const Entry& entry, const ActorWorkers& workers) const;
  Result<Entry*> Find(const proto::ActorRef& ref);
  void Begin(uint64_t id, Entry& entry, std::string worker, int64_t now_ms, ActorEffects& effects);
  void Move(Entry& entry, ActorStep step);
  void Died(uint64_t id, const Status& why, int64_t now_ms, ActorEffects& effects);
  // Out of the table: watchers are told, who waits is answered.
  void End(uint64_t id, ActorNews news, const Status& why, ActorEffects& effects);
  void FailAsks(uint64_t id, const Status& why, ActorEffects& effects);
  void Complete(uint64_t ask, Status status, std::string payload, ActorEffects& effects);
  proto::ActorRef RefOf(uint64_t id, const Entry& entry) const;

  const ActorTableOptions options_;
  uint64_t next_actor_;
  uint64_t next_ask_ = 1;
  int64_t stale_ = 0;
  actor::Supervisor supervisor_;
  std::map<uint64_t, Entry> actors_;
  std::map<uint64_t, PendingAsk> asks_;
  std::set<std::pair<int64_t, uint64_t>> asks_by_due_;
  std::map<std::string, Unreplied> unreplied_;               // by worker
  std::map<uint64_t, uint64_t> watched_;                     // actor, by call
  std::map<int64_t, std::set<std::string>> workers_of_job_;  // that may have a process of it
};

}  // namespace meshwright::controller
