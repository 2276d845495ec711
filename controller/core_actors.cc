#include "controller/core_actors.h"

#include <fmt/format.h>

#include <utility>

#include "controller/no_such_job.h"

namespace meshwright::controller {

ActorTableOptions ActorOptionsOf(const CoreOptions& options) {
  ActorTableOptions table;
  table.supervision = options.actor_supervision;
  table.start_deadline_ms = options.actor_start_deadline_ms;
  table.place_deadline_ms = options.actor_place_deadline_ms;
  // A controller of an earlier term has given ids, too.
  table.first_id = (options.term.value() << 32) + 1;
  return table;
}

ActorWorkers ReadyActorWorkers(const Membership& members) {
  ActorWorkers ready;
  for (const auto& [name, worker] : members.all()) {
    const bool open = members.standings().IsOpen(name);
    if (worker.state == WorkerState::kReady && open) ready[name] = worker.info.actor_types;
  }
  return ready;
}

void Carry(ActorEffects effects, CoreState& core, Context& context) {
  for (auto& effect : effects) {
    if (auto* send = std::get_if<ActorSend>(&effect)) {
      const Worker* const worker = core.members.Named(send->worker);
      if (worker == nullptr || worker->session.value() == 0) continue;
      core.tally.Count(send->job, KindName(send->body));
      // Of no job, so that it goes out also where a write of the job fails.
      context.Do(Send{JobId(0), worker->session, {core.options.term, std::move(send->body)}});
    } else if (auto* answer = std::get_if<ActorAnswer>(&effect)) {
      context.Do(std::move(*answer));
    } else if (auto* line = std::get_if<ActorLine>(&effect)) {
      context.Do(LogLine{line->job, std::move(line->line)});
    }
  }
}

void On(const SpawnActorCall& event, CoreState& core, Context& context) {
  const JobEntry* const job = core.book.Find(event.job);
  const auto refuse = [&](Status status) {
    ActorAnswer answer;
    answer.call = event.call;
    answer.status = std::move(status);
    context.Do(std::move(answer));
  };
  if (core.stopping) return refuse(Unavailable("the controller is stopping"));
  if (job == nullptr) return refuse(NoSuchJob(event.job));
  if (job->ended()) {
    return refuse(
        FailedPrecondition(fmt::format("job {} has ended, and its actors with it: {}",
                                       job->record.id, proto::JobStateName(job->record.state))));
  }
  Carry(core.actors.Spawn(event, ReadyActorWorkers(core.members), context.now.ms), core, context);
}

void On(const AskActorCall& event, CoreState& core, Context& context) {
  Carry(core.actors.Ask(event, context.now.ms), core, context);
}

void On(const StopActorCall& event, CoreState& core, Context& context) {
  Carry(core.actors.Stop(event), core, context);
}

void On(const WatchActorCall& event, CoreState& core, Context& context) {
  Carry(core.actors.Watch(event), core, context);
}

void On(const UnwatchActor& event, CoreState& core, Context&) { core.actors.Unwatch(event.call); }

bool OnActorMessage(const Worker& worker, const proto::UpBody& body, CoreState& core,
                    Context& context) {
  if (const auto* reply = std::get_if<proto::ActorReply>(&body)) {
    core.tally.Count(JobId(0), proto::KindName(body));
    Carry(core.actors.OnReply(worker.info.name, *reply), core, context);
  } else if (const auto* event = std::get_if<proto::ActorEvent>(&body)) {
    core.tally.Count(event->job, proto::KindName(body));
    Carry(core.actors.OnEvent(worker.info.name, *event, context.now.ms), core, context);
  } else {
    return false;
  }
  return true;
}

}  // namespace meshwright::controller
