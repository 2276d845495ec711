#include "controller/session_actors.h"

#include <fmt/format.h>

#include <utility>

namespace meshwright::controller {

void SessionActors::Ask(proto::SessionActorAsk ask) {
  if (unanswered_.fetch_add(1) >= kMostUnanswered) {
    return Failed(ask.id,
                  ResourceExhausted(fmt::format(
                      "{} questions to actors are unanswered, the most at once", kMostUnanswered)));
  }
  if (job_.load() == 0) return Failed(ask.id, FailedPrecondition("the session has no job yet"));
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

void SessionActors::Done(proto::ActorDone done) {
  --unanswered_;
  peer_->Tell(std::move(done));
}

void SessionActors::Failed(uint64_t id, const Status& status) {
  --unanswered_;
  peer_->Tell(proto::AskFailed{id, proto::MakeError(proto::ErrorKind::kRefused, status)});
}

}  // namespace meshwright::controller
