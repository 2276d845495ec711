// The calls of host actors: each becomes an event of the core, and is answered by its effects.
#include <utility>

#include "controller/control_loop.h"

namespace meshwright::controller {
namespace {

ActorAnswer StoppedAnswer(CallId call) {
  ActorAnswer answer;
  answer.call = call;
  answer.status = Unavailable("the controller is stopping");
  return answer;
}

}  // namespace

void ControlLoop::PostActorCall(CallId call, ActorWatcher done, std::function<Event(CallId)> make) {
  const bool posted = loop_.Post([this, call, done, make = std::move(make)] {
    if (stopped_) return done(StoppedAnswer(call));
    actor_calls_[call.value()] = done;
    StepOnLoop(make(call));
  });
  if (!posted) done(StoppedAnswer(call));
}

void ControlLoop::SpawnActor(JobId job, std::string type, std::string args, std::string worker,
                             Callback<proto::ActorRef> done) {
  PostActorCall(
      CallId(next_call_++),
      [done = std::move(done)](const ActorAnswer& answer) {
        answer.status.ok() ? done(answer.ref) : done(Fail(answer.status));
      },
      [job, type = std::move(type), args = std::move(args),
       worker = std::move(worker)](CallId call) -> Event {
        return SpawnActorCall{call, job, type, args, worker};
      });
}

void ControlLoop::AskActor(proto::ActorRef ref, std::string payload, int64_t deadline_ms,
                           Callback<std::string> done) {
  PostActorCall(
      CallId(next_call_++),
      [done = std::move(done)](const ActorAnswer& answer) {
        answer.status.ok() ? done(answer.payload) : done(Fail(answer.status));
      },
      [ref = std::move(ref), payload = std::move(payload), deadline_ms](CallId call) -> Event {
        return AskActorCall{call, ref, payload, deadline_ms, false};
      });
}

void ControlLoop::TellActor(proto::ActorRef ref, std::string payload, int64_t deadline_ms,
                            std::function<void(Status)> done) {
  PostActorCall(
      CallId(next_call_++),
      [done = std::move(done)](const ActorAnswer& answer) { done(answer.status); },
      [ref = std::move(ref), payload = std::move(payload), deadline_ms](CallId call) -> Event {
        return AskActorCall{call, ref, payload, deadline_ms, true};
      });
}

void ControlLoop::StopActor(proto::ActorRef ref, std::function<void(Status)> done) {
  PostActorCall(
      CallId(next_call_++),
      [done = std::move(done)](const ActorAnswer& answer) { done(answer.status); },
      [ref = std::move(ref)](CallId call) -> Event {
        return StopActorCall{call, ref};
      });
}

CallId ControlLoop::WatchActor(proto::ActorRef ref, ActorWatcher watcher) {
  const CallId call(next_call_++);
  PostActorCall(call, std::move(watcher), [ref = std::move(ref)](CallId id) -> Event {
    return WatchActorCall{id, ref};
  });
  return call;
}

void ControlLoop::UnwatchActor(CallId watch) {
  loop_.Post([this, watch] {
    if (actor_calls_.erase(watch.value()) == 0) return;
    StepOnLoop(controller::UnwatchActor{watch});
  });
}

void ControlLoop::Do(const ActorAnswer& answer) {
  const auto it = actor_calls_.find(answer.call.value());
  if (it == actor_calls_.end()) return;
  const ActorWatcher done = it->second;
  if (answer.last) actor_calls_.erase(it);
  done(answer);
}

void ControlLoop::EndActorCallsOnLoop() {
  for (auto& [call, done] : std::exchange(actor_calls_, {})) done(StoppedAnswer(CallId(call)));
}

}  // namespace meshwright::controller
