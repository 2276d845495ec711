#include "actor/place.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::actor {

Place::Place(PlaceParts parts)
    : parts_(std::move(parts)),
      asks_(std::make_shared<AskTable>(parts_.max_asks)),
      links_(parts_.link_credits),
      supervisor_(parts_.supervision) {
  MW_CHECK(parts_.clock != nullptr && parts_.loop != nullptr) << "a place without clock or loop";
  if (parts_.silent_ms > 0) {
    CheckSilentLater();
  }
}

Place::~Place() {
  const Status why = Cancelled(fmt::format("place {} has ended", parts_.id.value()));
  for (const auto& cell : cells()) cell->End(EventKind::kStopped, why);
  asks_->FailAll(why);
  links_.LoseAll(why);
}

// ---- Actors of this place -----------------------------------------------------------------------

std::shared_ptr<CellBase> Place::Find(ActorId id) const {
  const MutexLock lock(mutex_);
  const auto it = cells_.find(id.value());
  return it == cells_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<CellBase>> Place::cells() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<CellBase>> all;
  for (const auto& [id, cell] : cells_) all.push_back(cell);
  return all;
}

Decision Place::Decide(const Address& child, const std::string& kind, ChildEvent event) {
  const MutexLock lock(mutex_);
  return supervisor_.On(child.id.value(), kind, event, NowMs());
}

void Place::Restarted(ActorId child) {
  const MutexLock lock(mutex_);
  supervisor_.Restarted(child.value(), NowMs());
}

void Place::Escalate(const Address& child, const Status& why) {
  if (parts_.escalate) parts_.escalate(child, why);
}

void Place::Ended(ActorId child) {
  {
    const MutexLock lock(mutex_);
    cells_.erase(child.value());
    supervisor_.Forget(child.value());
  }
  if (parts_.ended) parts_.ended(child);
}

void Place::CheckSilent() {
  for (const auto& cell : cells()) {
    const int64_t busy_ms = cell->BusyMs(NowMs());
    if (busy_ms < parts_.silent_ms) continue;
    const Address address = cell->address();
    const Decision decision = Decide(address, cell->kind(), ChildEvent::kSilent);
    const Status why = DeadlineExceeded(
        fmt::format("{} has been at one message for {} ms", ToString(address), busy_ms));
    cell->End(EventKind::kGaveUp, why);
    if (decision.verdict != Verdict::kGiveUp) Escalate(address, why);
  }
  CheckSilentLater();
}

// Often enough to find it soon behind the time that it may take.
void Place::CheckSilentLater() {
  const int64_t wait_ms = std::max<int64_t>(parts_.silent_ms / 4, 1);
  (void)parts_.loop->PostAfter(wait_ms, [this] { CheckSilent(); });
}

// ---- Questions ----------------------------------------------------------------------------------

std::optional<AskId> Place::AddAsk(std::unique_ptr<PendingAsk> ask, const Address& asked,
                                   int64_t deadline_ms) {
  MW_CHECK(ask != nullptr) << "a question of " << ToString(asked) << " without one who waits";
  // Beyond a century every deadline is the same.
  constexpr int64_t kMostMs = int64_t{100} * 365 * 86'400 * 1000;
  const int64_t due_ms = NowMs() + std::clamp<int64_t>(deadline_ms, 0, kMostMs);
  const std::optional<AskId> id = asks_->Add(std::move(ask), asked, {due_ms, deadline_ms});
  if (id) SweepAt(due_ms);
  return id;
}

// One timer serves all questions: a new one is set only for what is due before it.
void Place::SweepAt(int64_t due_ms) {
  {
    const MutexLock lock(mutex_);
    if (sweep_due_ms_ >= 0 && sweep_due_ms_ <= due_ms) return;
    sweep_due_ms_ = due_ms;
  }
  const int64_t wait_ms = std::max<int64_t>(due_ms - NowMs(), 0);
  (void)parts_.loop->PostAfter(wait_ms, [this, due_ms] { Sweep(due_ms); });
}

void Place::Sweep(int64_t due_ms) {
  {
    const MutexLock lock(mutex_);
    // Of timers that an earlier one has overtaken only the set one goes on.
    if (sweep_due_ms_ == due_ms) sweep_due_ms_ = -1;
  }
  const std::optional<int64_t> next = asks_->ExpireDue(NowMs());
  if (next) SweepAt(*next);
}

// ---- Other places -------------------------------------------------------------------------------

Status Place::SendMessage(Frame frame) {
  const Address to = frame.to;
  MW_TRY(links_.TakeCredit(to));
  if (parts_.transport != nullptr && parts_.transport->Send(to.place, std::move(frame))) {
    return OkStatus();
  }
  links_.ReturnCredit(to.place);
  return DeadError(to, Unavailable(fmt::format("there is no way to place {}", to.place.value())));
}

void Place::SpawnAt(const Address& wanted, std::string type, std::string args, int64_t deadline_ms,
                    std::function<void(Result<Address>)> done) {
  auto decode = [](const Frame& frame) -> Result<Address> { return frame.to; };
  const std::optional<AskId> id =
      AddAsk(std::make_unique<TypedAsk<Address>>(std::move(done), decode), wanted, deadline_ms);
  if (!id) return;
  const Status sent = SendMessage(Frame{.kind = FrameKind::kSpawn,
                                        .message = id->value(),
                                        .to = wanted,
                                        .text = std::move(type),
                                        .bytes = std::move(args)});
  if (!sent.ok()) asks_->Fail(*id, sent);
}

void Place::Stop(const Address& address) {
  if (address.place != parts_.id) {
    if (parts_.transport == nullptr) return;
    (void)parts_.transport->Send(address.place, Frame{.kind = FrameKind::kStop, .to = address});
    return;
  }
  const auto cell = Find(address.id);
  if (cell && cell->address().generation == address.generation) {
    cell->End(EventKind::kStopped, Cancelled("it was stopped"));
  }
}

void Place::Watch(const Address& address, Watcher watcher) {
  if (address.place == parts_.id) {
    if (const auto cell = Find(address.id)) return cell->Watch(std::move(watcher));
    return watcher(Event{EventKind::kLost, address, GoneError(address, ActorGeneration(0))});
  }
  const uint64_t id = links_.AddWatch(address, std::move(watcher));
  if (id == 0) return;
  const bool sent =
      parts_.transport != nullptr &&
      parts_.transport->Send(address.place,
                             Frame{.kind = FrameKind::kWatch, .message = id, .to = address});
  if (!sent) {
    links_.OnEvent(
        id, Event{EventKind::kLost, address,
                  Unavailable(fmt::format("there is no way to place {}", address.place.value()))});
  }
}

void Place::OnPlaceLost(PlaceId place, const Status& cause) {
  links_.Lose(place, cause);
  asks_->FailPlace(place, cause);
}

void Place::Answer(PlaceId to, uint64_t message, const Address& about, Result<Bytes> reply) {
  MW_CHECK(parts_.transport != nullptr)
      << "a frame came from place " << to.value() << ", and there is no way back";
  Frame frame{.kind = FrameKind::kReply, .message = message, .to = about};
  if (reply.has_value()) {
    frame.bytes = std::move(reply->data);
  } else {
    frame.code = reply.error().code();
    frame.text = reply.error().message();
  }
  (void)parts_.transport->Send(to, std::move(frame));
}

void Place::OnSpawn(PlaceId from, Frame frame) {
  SpawnOptions<Bytes> options;
  options.kind = frame.text;
  options.mailbox = parts_.mailbox;
  options.codec = MessageCodec<Bytes>{CodecOfBytes(), CodecOfBytes()};
  options.factory = [this, type = frame.text, args = frame.bytes] {
    return parts_.registry->Make(type, args);
  };
  auto made = std::make_shared<Address>(Address{parts_.id, frame.to.id, frame.to.generation});
  if (made->generation.value() == 0) made->generation = ActorGeneration(1);
  if (parts_.registry == nullptr) {
    return Answer(from, frame.message, *made,
                  Fail(Unimplemented("no actors can be spawned in this place")));
  }
  if (made->id.value() == 0) {
    const MutexLock lock(mutex_);
    made->id = ActorId(next_actor_++);
  }
  options.started = [this, from, message = frame.message, made](const Status& status) {
    if (status.ok()) return Answer(from, message, *made, Bytes{});
    Answer(from, message, *made, Fail(status));
  };
  if (parts_.scheduler_of) options.scheduler = parts_.scheduler_of(made->id);
  if (Add<Bytes>(made->id, made->generation, std::move(options)) == nullptr) {
    Answer(from, frame.message, *made,
           Fail(AlreadyExists(ToString(*made) + " cannot be made: its id is in use")));
  }
}

// kTell and kAsk.
void Place::OnMessage(PlaceId from, Frame frame) {
  const bool ask = frame.kind == FrameKind::kAsk;
  const auto cell = frame.to.place == parts_.id ? Find(frame.to.id) : nullptr;
  if (!cell) {
    return Answer(from, frame.message, frame.to, Fail(GoneError(frame.to, ActorGeneration(0))));
  }
  const auto respond = [this, from, message = frame.message, to = frame.to](Result<Bytes> reply) {
    Answer(from, message, to, std::move(reply));
  };
  if (!ask) {
    // That it was taken is all that the sender of a Tell hears.
    const Status taken = cell->OfferBytes(frame.to.generation, std::move(frame.bytes), {});
    return taken.ok() ? respond(Bytes{}) : respond(Fail(taken));
  }
  const std::optional<AskId> id =
      AddAsk(std::make_unique<TypedAsk<Bytes>>(respond, nullptr), frame.to, frame.deadline_ms);
  if (!id) return;
  (void)cell->OfferBytes(frame.to.generation, std::move(frame.bytes),
                         ReplySlot<Bytes>([asks = asks_, id = *id](Result<Bytes> reply) {
                           asks->Answer<Bytes>(id, std::move(reply));
                         }));
}

void Place::OnFrame(PlaceId from, Frame frame) {
  switch (frame.kind) {
    case FrameKind::kSpawn:
      return OnSpawn(from, std::move(frame));
    case FrameKind::kTell:
    case FrameKind::kAsk:
      return OnMessage(from, std::move(frame));
    case FrameKind::kReply: {
      links_.ReturnCredit(from);
      if (frame.message == 0) {
        if (frame.code != StatusCode::kOk) ++dropped_tells_;
        return;
      }
      if (const auto ask = asks_->Take(AskId(frame.message))) ask->AnswerFrame(frame);
      return;
    }
    case FrameKind::kStop:
      return Stop(frame.to.place == parts_.id ? frame.to : Address{});
    case FrameKind::kWatch:
      return Watch(frame.to.place == parts_.id ? frame.to : Address{parts_.id, {}, {}},
                   [this, from, watch = frame.message](const Event& event) {
                     (void)parts_.transport->Send(
                         from, Frame{.kind = FrameKind::kEvent,
                                     .event = event.kind,
                                     .code = event.why.code(),
                                     .message = watch,
                                     .to = event.address,
                                     .text = event.why.ok() ? "" : event.why.message()});
                   });
    case FrameKind::kEvent:
      return links_.OnEvent(frame.message, Event{frame.event, frame.to, frame.status()});
    case FrameKind::kPing:
      (void)parts_.loop->Post([this, from, message = frame.message] {
        (void)parts_.transport->Send(from, Frame{.kind = FrameKind::kPong, .message = message});
      });
      return;
    case FrameKind::kPong:
      return;  // of those who ping
  }
}

}  // namespace meshwright::actor
