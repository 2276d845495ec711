#include "controller/session_actors.h"

#include <fmt/format.h>

#include <utility>

namespace meshwright::controller {
namespace {

// kUnspecified: there is no such actor to watch.
proto::ActorFate FateOf(const ActorAnswer& answer) {
  if (answer.ref.id == 0) return proto::ActorFate::kUnspecified;
  if (answer.news == ActorNews::kRestarted) return proto::ActorFate::kRestarted;
  if (answer.news == ActorNews::kStopped) return proto::ActorFate::kStopped;
  return proto::ActorFate::kGaveUp;
}

}  // namespace

void SessionActors::Ask(proto::SessionActorAsk ask) {
  const bool watch = std::holds_alternative<proto::WatchHostActor>(ask.ask);
  if (!watch && unanswered_.fetch_add(1) >= proto::kMostActorAsks) {
    return Failed(ask.id,
                  ResourceExhausted(fmt::format("{} questions to actors are unanswered, the most "
                                                "at once; ask more once some are answered",
                                                proto::kMostActorAsks)));
  }
  if (job_.load() == 0) {
    const Status status = FailedPrecondition("the session has no job yet");
    return watch ? Refuse(ask.id, status) : Failed(ask.id, status);
  }
  std::visit([&](auto& body) { Start(ask.id, body); }, ask.ask);
}

void SessionActors::Start(uint64_t id, proto::SpawnHostActor& ask) {
  loop_->SpawnActor(JobId(job_.load()), std::move(ask.type), std::move(ask.args),
                    std::move(ask.worker),
                    [self = shared_from_this(), id](Result<proto::ActorRef> ref) {
                      if (!ref.has_value()) return self->Failed(id, ref.error());
                      self->Done({id, std::move(*ref), ""});
                    });
}

void SessionActors::Start(uint64_t id, proto::AskHostActor& ask) {
  if (ask.tell) {
    return loop_->TellActor(std::move(ask.ref), std::move(ask.payload), ask.deadline_ms,
                            [self = shared_from_this(), id](Status status) {
                              if (!status.ok()) return self->Failed(id, status);
                              self->Done({id, {}, ""});
                            });
  }
  loop_->AskActor(std::move(ask.ref), std::move(ask.payload), ask.deadline_ms,
                  [self = shared_from_this(), id](Result<std::string> payload) {
                    if (!payload.has_value()) return self->Failed(id, payload.error());
                    self->Done({id, {}, std::move(*payload)});
                  });
}

void SessionActors::Start(uint64_t id, proto::StopHostActor& ask) {
  loop_->StopActor(std::move(ask.ref), [self = shared_from_this(), id](Status status) {
    if (!status.ok()) return self->Failed(id, status);
    self->Done({id, {}, ""});
  });
}

void SessionActors::Start(uint64_t id, proto::WatchHostActor& ask) {
  {
    const MutexLock lock(mutex_);
    if (ended_) return;
    if (watches_.size() >= proto::kMostActorWatches) {
      return Refuse(id, ResourceExhausted(fmt::format(
                            "the session watches {} actors, the most at once", watches_.size())));
    }
    // The news may come before the call that asks for them returns.
    if (!watches_.emplace(id, CallId(0)).second) {
      return Refuse(id, InvalidArgument(fmt::format("the number {} is taken by a watch", id)));
    }
  }
  const CallId call = loop_->WatchActor(
      std::move(ask.ref),
      [self = shared_from_this(), id](const ActorAnswer& answer) { self->OnNews(id, answer); });
  {
    const MutexLock lock(mutex_);
    const auto it = watches_.find(id);
    if (it == watches_.end()) return;  // told already
    it->second = call;
    if (!ended_) return;
  }
  loop_->UnwatchActor(call);
}

void SessionActors::OnNews(uint64_t id, const ActorAnswer& answer) {
  {
    const MutexLock lock(mutex_);
    if (watches_.erase(id) == 0 || ended_) return;
  }
  if (!answer.last) loop_->UnwatchActor(answer.call);
  const proto::ActorFate fate = FateOf(answer);
  if (fate == proto::ActorFate::kUnspecified) return Refuse(id, answer.status);
  proto::ActorDone done{id, answer.ref, ""};
  done.fate = fate;
  done.why = proto::MakeError(proto::ErrorKind::kRefused, answer.status);
  peer_->Tell(std::move(done));
}

void SessionActors::End() {
  std::map<uint64_t, CallId> watches;
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    watches = watches_;
  }
  for (const auto& [id, call] : watches) {
    if (call.value() != 0) loop_->UnwatchActor(call);
  }
}

void SessionActors::Done(proto::ActorDone done) {
  --unanswered_;
  peer_->Tell(std::move(done));
}

void SessionActors::Failed(uint64_t id, const Status& status) {
  --unanswered_;
  Refuse(id, status);
}

void SessionActors::Refuse(uint64_t id, const Status& status) {
  peer_->Tell(proto::AskFailed{id, proto::MakeError(proto::ErrorKind::kRefused, status)});
}

}  // namespace meshwright::controller
