#include "controller/actor_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "actor/address.h"
#include "base/check.h"
#include "base/text.h"
#include "base/utf8.h"

namespace meshwright::controller {
namespace {

constexpr size_t kMaxTypeBytes = 128;

constexpr std::array<Transition<ActorPhase, ActorStep>, 4> kPhases = {{
    {ActorPhase::kStarting, ActorStep::kStarted, ActorPhase::kRunning},
    {ActorPhase::kStarting, ActorStep::kDied, ActorPhase::kWaiting},
    {ActorPhase::kRunning, ActorStep::kDied, ActorPhase::kWaiting},
    {ActorPhase::kWaiting, ActorStep::kDue, ActorPhase::kStarting},
}};

actor::Address AddressOf(const proto::ActorRef& ref) {
  return {actor::PlaceId(0), actor::ActorId(ref.id), actor::ActorGeneration(ref.generation)};
}

bool Has(const std::vector<std::string>& types, const std::string& type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::string TypesOf(const ActorWorkers& workers) {
  std::set<std::string> types;
  for (const auto& [name, has] : workers) types.insert(has.begin(), has.end());
  return types.empty() ? "none" : Join({types.begin(), types.end()}, ", ");
}

Status CheckCall(const SpawnActorCall& call) {
  if (call.type.empty() || call.type.size() > kMaxTypeBytes) {
    return InvalidArgument(
        fmt::format("the name of an actor type has {} bytes; 1 to {} are allowed", call.type.size(),
                    kMaxTypeBytes));
  }
  if (call.args.size() > proto::kMaxActorPayloadBytes) {
    return InvalidArgument(fmt::format("the arguments of an actor have {} bytes; at most {} go",
                                       call.args.size(), proto::kMaxActorPayloadBytes));
  }
  return OkStatus();
}

void Answer(CallId call, Status status, ActorEffects& effects) {
  ActorAnswer answer;
  answer.call = call;
  answer.status = std::move(status);
  effects.push_back(std::move(answer));
}

Status CheckCredit(const Unreplied& sent, const ActorTableOptions& most, const std::string& worker,
                   size_t bytes) {
  const int64_t all_bytes = sent.bytes() + static_cast<int64_t>(bytes);
  if (sent.size() < most.credits && all_bytes <= most.credit_bytes) return OkStatus();
  return ResourceExhausted(
      fmt::format("worker '{}' has not answered {} messages of {} bytes to actors; {} messages and "
                  "{} bytes are the most at once: send more once it has",
                  worker, sent.size(), sent.bytes(), most.credits, most.credit_bytes));
}

}  // namespace

std::span<const Transition<ActorPhase, ActorStep>> ActorPhases() { return kPhases; }

ActorTable::ActorTable(ActorTableOptions options)
    : options_(std::move(options)),
      next_actor_(options_.first_id),
      supervisor_(options_.supervision) {}

// ---- What clients want --------------------------------------------------------------------------

ActorEffects ActorTable::Spawn(const SpawnActorCall& call, const ActorWorkers& workers,
                               int64_t now_ms) {
  ActorEffects effects;
  Entry entry;
  entry.job = call.job;
  entry.type = call.type;
  entry.args = call.args;
  entry.wanted = call.worker;
  entry.spawn = call.call;
  const Result<std::string> worker = [&]() -> Result<std::string> {
    MW_TRY(CheckCall(call));
    if (actors_.size() >= options_.max_actors) {
      return Fail(ResourceExhausted(
          fmt::format("the cluster has {} actors, the most at once; stop some", actors_.size())));
    }
    return PlaceOf(entry, workers);
  }();
  if (!worker.has_value()) {
    Answer(call.call, worker.error(), effects);
    return effects;
  }
  const uint64_t id = next_actor_++;
  Begin(id, actors_.emplace(id, std::move(entry)).first->second, *worker, now_ms, effects);
  return effects;
}

Result<std::string> ActorTable::PlaceOf(const Entry& entry, const ActorWorkers& workers) const {
  std::map<std::string, size_t> load;
  for (const auto& [name, types] : workers) {
    if (Has(types, entry.type) && (entry.wanted.empty() || entry.wanted == name)) load[name] = 0;
  }
  for (const auto& [id, other] : actors_) {
    if (const auto it = load.find(other.worker); it != load.end()) ++it->second;
  }
  if (!load.empty()) {
    return std::min_element(load.begin(), load.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }
  if (!entry.wanted.empty() && !workers.contains(entry.wanted)) {
    return Fail(
        Unavailable(fmt::format("the actor type '{}' is to run on worker '{}', which is not "
                                "ready; start it, or leave the place open",
                                entry.type, entry.wanted)));
  }
  return Fail(NotFound(
      fmt::format("no ready worker{} has the actor type '{}'; there are: {}; link it into the "
                  "worker's binary (worker/main.h)",
                  entry.wanted.empty() ? "" : fmt::format(" named '{}'", entry.wanted),
                  AsUtf8(entry.type, kMaxTypeBytes), TypesOf(workers))));
}

void ActorTable::Begin(uint64_t id, Entry& entry, std::string worker, int64_t now_ms,
                       ActorEffects& effects) {
  entry.worker = std::move(worker);
  entry.due_ms = now_ms + options_.start_deadline_ms;
  workers_of_job_[entry.job.value()].insert(entry.worker);
  effects.push_back(
      ActorSend{entry.worker, entry.job,
                proto::SpawnActor{entry.job, id, entry.generation, entry.type, entry.args}});
}

// Errors: gone.
Result<ActorTable::Entry*> ActorTable::Find(const proto::ActorRef& ref) {
  const auto it = actors_.find(ref.id);
  if (it == actors_.end()) {
    return Fail(actor::GoneError(AddressOf(ref), actor::ActorGeneration(0)));
  }
  const bool of_a_life = ref.generation != 0;  // else of whichever there is now
  if (of_a_life && it->second.generation != ref.generation) {
    return Fail(actor::GoneError(AddressOf(ref), actor::ActorGeneration(it->second.generation)));
  }
  return &it->second;
}

ActorEffects ActorTable::Ask(const AskActorCall& call, int64_t now_ms) {
  ActorEffects effects;
  const Result<Entry*> entry = [&]() -> Result<Entry*> {
    MW_ASSIGN_OR_RETURN(Entry * found, Find(call.ref));
    if (call.payload.size() > proto::kMaxActorPayloadBytes) {
      return Fail(InvalidArgument(fmt::format("a message to an actor has {} bytes; at most {} go",
                                              call.payload.size(), proto::kMaxActorPayloadBytes)));
    }
    if (found->phase != ActorPhase::kRunning) {
      return Fail(actor::DeadError(AddressOf(call.ref), Aborted("it will be started again")));
    }
    if (call.deadline_ms <= 0) {
      return Fail(actor::LateError(AddressOf(call.ref), call.deadline_ms));
    }
    MW_TRY(CheckCredit(unreplied_[found->worker], options_, found->worker, call.payload.size()));
    return found;
  }();
  if (!entry.has_value()) {
    Answer(call.call, entry.error(), effects);
    return effects;
  }
  const Entry& to = **entry;
  const uint64_t ask = next_ask_++;
  unreplied_[to.worker].Add(ask, static_cast<int64_t>(call.payload.size()));
  effects.push_back(ActorSend{to.worker, to.job,
                              proto::ActorMessage{to.job, call.ref.id, to.generation, ask,
                                                  call.tell, call.deadline_ms, call.payload}});
  // Beyond a century every deadline is the same.
  const int64_t due_ms = now_ms + std::min<int64_t>(call.deadline_ms, 3'000'000'000'000);
  asks_.emplace(
      ask, PendingAsk{call.call, call.ref.id, to.generation, to.worker, due_ms, call.deadline_ms});
  asks_by_due_.emplace(due_ms, ask);
  return effects;
}

ActorEffects ActorTable::Stop(const StopActorCall& call) {
  ActorEffects effects;
  const Result<Entry*> entry = Find(call.ref);
  if (!entry.has_value()) {
    Answer(call.call, entry.error(), effects);
    return effects;
  }
  const Entry& to = **entry;
  if (!to.worker.empty()) {
    effects.push_back(
        ActorSend{to.worker, to.job, proto::StopActor{to.job, call.ref.id, to.generation}});
  }
  End(call.ref.id, ActorNews::kStopped, actor::StoppedError(AddressOf(call.ref)), effects);
  Answer(call.call, OkStatus(), effects);
  return effects;
}

ActorEffects ActorTable::Watch(const WatchActorCall& call) {
  ActorEffects effects;
  const Result<Entry*> entry = Find(call.ref);
  if (!entry.has_value()) {
    Answer(call.call, entry.error(), effects);
    std::get<ActorAnswer>(effects.back()).news = ActorNews::kGaveUp;
    return effects;
  }
  (*entry)->watches.insert(call.call.value());
  watched_[call.call.value()] = call.ref.id;
  return effects;
}

void ActorTable::Unwatch(CallId call) {
  const auto it = watched_.find(call.value());
  if (it == watched_.end()) return;
  actors_.at(it->second).watches.erase(call.value());
  watched_.erase(it);
}

// ---- What workers say ---------------------------------------------------------------------------

ActorEffects ActorTable::OnReply(const std::string& worker, const proto::ActorReply& reply) {
  ActorEffects effects;
  const auto it = unreplied_.find(worker);
  if (it == unreplied_.end() || !it->second.Remove(reply.ask)) {
    ++stale_;
    return effects;
  }
  if (!asks_.contains(reply.ask)) return effects;  // completed already
  Status status;
  if (reply.code != StatusCode::kOk) status = Status(reply.code, reply.message);
  Complete(reply.ask, std::move(status), reply.payload, effects);
  return effects;
}

ActorEffects ActorTable::OnEvent(const std::string& worker, const proto::ActorEvent& event,
                                 int64_t now_ms) {
  ActorEffects effects;
  const auto it = actors_.find(event.actor);
  if (it == actors_.end() || it->second.generation != event.generation ||
      it->second.worker != worker) {
    ++stale_;
    // One that has begun, and that nobody knows any more, must not go on.
    if (event.kind == proto::ActorEventKind::kStarted) {
      effects.push_back(
          ActorSend{worker, event.job, proto::StopActor{event.job, event.actor, event.generation}});
    }
    return effects;
  }
  Entry& entry = it->second;
  const Status why(event.code == StatusCode::kOk ? StatusCode::kUnknown : event.code,
                   event.message.empty() ? "its worker did not say why" : event.message);
  if (event.kind == proto::ActorEventKind::kFailed) {
    Died(event.actor, why, now_ms, effects);
  } else if (event.kind == proto::ActorEventKind::kStopped) {
    End(event.actor, ActorNews::kStopped, why, effects);
  } else if (event.kind == proto::ActorEventKind::kStarted &&
             entry.phase == ActorPhase::kStarting) {
    Move(entry, ActorStep::kStarted);
    const proto::ActorRef ref = RefOf(event.actor, entry);
    if (entry.spawn.value() != 0) {
      Answer(entry.spawn, OkStatus(), effects);
      std::get<ActorAnswer>(effects.back()).ref = ref;
      entry.spawn = CallId(0);
    } else {
      supervisor_.Restarted(event.actor, now_ms);
      for (const uint64_t call : entry.watches) {
        effects.push_back(
            ActorAnswer{CallId(call), entry.why, ref, "", ActorNews::kRestarted, false});
      }
    }
    effects.push_back(
        ActorLine{entry.job, fmt::format("actor {} '{}' (generation {}) runs on {}", event.actor,
                                         entry.type, entry.generation, entry.worker)});
  } else {
    ++stale_;
  }
  return effects;
}

ActorEffects ActorTable::WorkerGone(const std::string& worker, const std::string& why,
                                    int64_t now_ms) {
  ActorEffects effects;
  unreplied_.erase(worker);
  for (auto& [job, names] : workers_of_job_) names.erase(worker);
  std::vector<uint64_t> dead;
  for (const auto& [id, entry] : actors_) {
    if (entry.worker == worker) dead.push_back(id);
  }
  for (const uint64_t id : dead) Died(id, Unavailable(why), now_ms, effects);
  return effects;
}

ActorEffects ActorTable::JobEnded(JobId job) {
  ActorEffects effects;
  std::vector<uint64_t> over;
  for (const auto& [id, entry] : actors_) {
    if (entry.job == job) over.push_back(id);
  }
  for (const uint64_t id : over) {
    End(id, ActorNews::kStopped, Cancelled(fmt::format("job {} has ended", job.value())), effects);
  }
  const auto workers = workers_of_job_.find(job.value());
  if (workers == workers_of_job_.end()) return effects;
  for (const std::string& worker : workers->second) {
    effects.push_back(ActorSend{worker, job, proto::StopActor{job, 0, 0}});
  }
  workers_of_job_.erase(workers);
  return effects;
}

ActorEffects ActorTable::Tick(const ActorWorkers& workers, int64_t now_ms) {
  ActorEffects effects;
  while (!asks_by_due_.empty() && asks_by_due_.begin()->first <= now_ms) {
    const uint64_t ask = asks_by_due_.begin()->second;
    const PendingAsk& late = asks_.at(ask);
    const proto::ActorRef ref{late.worker, late.actor, late.generation};
    Complete(ask, actor::LateError(AddressOf(ref), late.deadline_ms), "", effects);
  }
  std::vector<uint64_t> due;
  for (const auto& [id, entry] : actors_) {
    if (entry.phase != ActorPhase::kRunning && entry.due_ms <= now_ms) due.push_back(id);
  }
  for (const uint64_t id : due) {
    Entry& entry = actors_.at(id);
    if (entry.phase == ActorPhase::kStarting) {
      effects.push_back(
          ActorSend{entry.worker, entry.job, proto::StopActor{entry.job, id, entry.generation}});
      Died(id,
           DeadlineExceeded(
               fmt::format("it did not start within {} ms", options_.start_deadline_ms)),
           now_ms, effects);
      continue;
    }
    const Result<std::string> worker = PlaceOf(entry, workers);
    if (worker.has_value()) {
      Move(entry, ActorStep::kDue);
      ++entry.generation;
      Begin(id, entry, *worker, now_ms, effects);
    } else if (now_ms - entry.waiting_since_ms >= options_.place_deadline_ms) {
      End(id, ActorNews::kGaveUp, worker.error(), effects);
    }
  }
  return effects;
}

ActorEffects ActorTable::Shutdown() {
  ActorEffects effects;
  const Status why = Unavailable("the controller is stopping");
  while (!actors_.empty()) End(actors_.begin()->first, ActorNews::kStopped, why, effects);
  return effects;
}

// ---- Lives --------------------------------------------------------------------------------------

void ActorTable::Move(Entry& entry, ActorStep step) {
  for (const Transition<ActorPhase, ActorStep>& row : kPhases) {
    if (row.from != entry.phase || row.event != step) continue;
    entry.phase = row.to;
    return;
  }
  MW_CHECK(false) << "an actor in phase " << static_cast<int>(entry.phase) << " cannot do step "
                  << static_cast<int>(step);
}

void ActorTable::Died(uint64_t id, const Status& why, int64_t now_ms, ActorEffects& effects) {
  Entry& entry = actors_.at(id);
  const proto::ActorRef ref = RefOf(id, entry);
  if (entry.spawn.value() != 0) return End(id, ActorNews::kGaveUp, why, effects);
  FailAsks(id, actor::DeadError(AddressOf(ref), why), effects);
  Move(entry, ActorStep::kDied);
  entry.worker.clear();
  entry.why = why;
  const actor::Decision decision =
      supervisor_.On(id, entry.type, actor::ChildEvent::kFailed, now_ms);
  const std::string what = fmt::format("actor {} '{}' (generation {}) failed on {}: {}", id,
                                       entry.type, ref.generation, ref.worker, why.message());
  if (decision.verdict != actor::Verdict::kRestart) {
    effects.push_back(ActorLine{entry.job, what + "; given up"});
    return End(id, ActorNews::kGaveUp, why, effects);
  }
  entry.waiting_since_ms = now_ms;
  entry.due_ms = now_ms + decision.after_ms;
  effects.push_back(
      ActorLine{entry.job, fmt::format("{}; again in {} ms", what, decision.after_ms)});
}

void ActorTable::End(uint64_t id, ActorNews news, const Status& why, ActorEffects& effects) {
  const auto it = actors_.find(id);
  const Entry entry = std::move(it->second);
  const proto::ActorRef ref = RefOf(id, entry);
  actors_.erase(it);
  supervisor_.Forget(id);
  const bool stopped = news == ActorNews::kStopped;
  FailAsks(id, stopped ? why : actor::DeadError(AddressOf(ref), why), effects);
  if (entry.spawn.value() != 0) Answer(entry.spawn, why, effects);
  for (const uint64_t call : entry.watches) {
    watched_.erase(call);
    effects.push_back(ActorAnswer{CallId(call), why, ref, "", news, true});
  }
}

void ActorTable::FailAsks(uint64_t id, const Status& why, ActorEffects& effects) {
  std::vector<uint64_t> failed;
  for (const auto& [ask, pending] : asks_) {
    if (pending.actor == id) failed.push_back(ask);
  }
  for (const uint64_t ask : failed) Complete(ask, why, "", effects);
}

void ActorTable::Complete(uint64_t ask, Status status, std::string payload, ActorEffects& effects) {
  const auto it = asks_.find(ask);
  ActorAnswer answer;
  answer.call = it->second.call;
  answer.status = std::move(status);
  answer.payload = std::move(payload);
  asks_by_due_.erase({it->second.due_ms, ask});
  asks_.erase(it);
  effects.push_back(std::move(answer));
}

proto::ActorRef ActorTable::RefOf(uint64_t id, const Entry& entry) const {
  return {entry.worker, id, entry.generation};
}

size_t ActorTable::unreplied(const std::string& worker) const {
  const auto it = unreplied_.find(worker);
  return it == unreplied_.end() ? 0 : it->second.size();
}

Status ActorTable::CheckInvariants() const {
  for (const auto& [worker, asks] : unreplied_) {
    if (asks.size() > options_.credits || asks.bytes() > options_.credit_bytes) {
      return Internal(fmt::format("worker '{}' holds {} messages of {} bytes", worker, asks.size(),
                                  asks.bytes()));
    }
  }
  for (const auto& [ask, pending] : asks_) {
    const auto entry = actors_.find(pending.actor);
    const bool alive = entry != actors_.end() && entry->second.phase == ActorPhase::kRunning &&
                       entry->second.generation == pending.generation &&
                       entry->second.worker == pending.worker;
    if (!alive) return Internal(fmt::format("ask {} waits for a life that is over", ask));
    const auto unreplied = unreplied_.find(pending.worker);
    if (unreplied == unreplied_.end() || !unreplied->second.Has(ask) ||
        !asks_by_due_.contains({pending.due_ms, ask})) {
      return Internal(fmt::format("ask {} is not in every list", ask));
    }
  }
  for (const auto& [id, entry] : actors_) {
    const bool placed = !entry.worker.empty();
    if (placed == (entry.phase == ActorPhase::kWaiting)) {
      return Internal(fmt::format("actor {} is in the wrong place for its phase", id));
    }
    if (entry.spawn.value() != 0 &&
        (entry.phase != ActorPhase::kStarting || entry.generation != 1)) {
      return Internal(fmt::format("actor {} has begun, and its spawn was not answered", id));
    }
    for (const uint64_t call : entry.watches) {
      if (!watched_.contains(call)) return Internal(fmt::format("watch {} is lost", call));
    }
  }
  return asks_by_due_.size() == asks_.size() ? OkStatus() : Internal("due times without asks");
}

}  // namespace meshwright::controller
