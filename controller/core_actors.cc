// What the core knows that controller/actor_table.h has to: jobs, ready workers, sessions.
#include <fmt/format.h>

#include <utility>

#include "controller/core.h"

namespace meshwright::controller {

ActorTableOptions Core::ActorOptions(const CoreOptions& options) {
  ActorTableOptions table;
  table.supervision = options.actor_supervision;
  table.start_deadline_ms = options.actor_start_deadline_ms;
  table.place_deadline_ms = options.actor_place_deadline_ms;
  // A controller of an earlier term has given ids, too.
  table.first_id = (options.term.value() << 32) + 1;
  return table;
}

ActorWorkers Core::ReadyActorWorkers() const {
  ActorWorkers ready;
  for (const auto& [name, worker] : members_.all()) {
    if (worker.state == WorkerState::kReady) ready[name] = worker.info.actor_types;
  }
  return ready;
}

void Core::Carry(ActorEffects effects, Context& context) {
  for (auto& effect : effects) {
    if (auto* send = std::get_if<ActorSend>(&effect)) {
      const Worker* const worker = members_.Named(send->worker);
      if (worker == nullptr || worker->session.value() == 0) continue;
      CountMessage(send->job, KindName(send->body));
      // Of no job, so that it goes out also where a write of the job fails.
      context.effects.push_back(
          Send{JobId(0), worker->session, {options_.term, std::move(send->body)}});
    } else if (auto* answer = std::get_if<ActorAnswer>(&effect)) {
      context.effects.push_back(std::move(*answer));
    } else if (auto* line = std::get_if<ActorLine>(&effect)) {
      context.effects.push_back(LogLine{line->job, std::move(line->line)});
    }
  }
}

void Core::On(const SpawnActorCall& event, Context& context) {
  const JobEntry* job = FindJob(event.job);
  const auto refuse = [&](Status status) {
    ActorAnswer answer;
    answer.call = event.call;
    answer.status = std::move(status);
    context.effects.push_back(std::move(answer));
  };
  if (stopping_) return refuse(Unavailable("the controller is stopping"));
  if (job == nullptr) return refuse(NotFound(fmt::format("there is no job {}", event.job.value())));
  if (proto::IsTerminal(job->record.state)) {
    return refuse(
        FailedPrecondition(fmt::format("job {} has ended, and its actors with it: {}",
                                       job->record.id, proto::JobStateName(job->record.state))));
  }
  Carry(actors_.Spawn(event, ReadyActorWorkers(), context.now.ms), context);
}

void Core::On(const AskActorCall& event, Context& context) {
  Carry(actors_.Ask(event, context.now.ms), context);
}

void Core::On(const StopActorCall& event, Context& context) { Carry(actors_.Stop(event), context); }

void Core::On(const WatchActorCall& event, Context& context) {
  Carry(actors_.Watch(event), context);
}

void Core::On(const UnwatchActor& event, Context&) { actors_.Unwatch(event.call); }

bool Core::OnActor(const Worker& worker, const proto::UpBody& body, Context& context) {
  if (const auto* reply = std::get_if<proto::ActorReply>(&body)) {
    CountMessage(JobId(0), proto::KindName(body));
    Carry(actors_.OnReply(worker.info.name, *reply), context);
  } else if (const auto* event = std::get_if<proto::ActorEvent>(&body)) {
    CountMessage(event->job, proto::KindName(body));
    Carry(actors_.OnEvent(worker.info.name, *event, context.now.ms), context);
  } else {
    return false;
  }
  return true;
}

}  // namespace meshwright::controller
