// ActorRef: the handle of an actor, here or in another place, with the same calls.
//
// A ref names one generation. After a restart (Watch tells) it is answered kNotFound; Renewed gives
// the ref of the new life. Thread rule: a value; its calls are thread-safe. Ownership: its place
// outlives it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "actor/place.h"

namespace meshwright::actor {

template <class Message>
class ActorRef {
 public:
  using Reply = ReplyOf<Message>;
  using Done = std::function<void(Result<Reply>)>;

  const Address& address() const { return address_; }

  // Errors: those of actor/address.h, as far as this place can know them; a Tell to another place
  // that is refused there is counted (Place::dropped_tells).
  Status Tell(Message message) const {
    if (cell_) {
      Envelope<Message> envelope{std::move(message), {}};
      return cell_->Offer(address_.generation, envelope);
    }
    return place_->SendMessage(
        Frame{.kind = FrameKind::kTell, .to = address_, .bytes = codec_->message.encode(message)});
  }

  // As Tell, but says when its mailbox has the message, or why it does not. As Ask otherwise.
  void Tell(Message message, int64_t deadline_ms,
            std::function<void(Result<Nothing>)> taken) const {
    auto decode = [](const Frame&) -> Result<Nothing> { return Nothing{}; };
    const std::optional<AskId> id = place_->AddAsk(
        std::make_unique<TypedAsk<Nothing>>(std::move(taken), decode), address_, deadline_ms);
    if (!id) return;
    if (cell_) {
      const Status told = Tell(std::move(message));
      place_->asks_->template Answer<Nothing>(*id,
                                              told.ok() ? Result<Nothing>(Nothing{}) : Fail(told));
      return;
    }
    const Status sent = place_->SendMessage(Frame{.kind = FrameKind::kTell,
                                                  .message = id->value(),
                                                  .to = address_,
                                                  .bytes = codec_->message.encode(message)});
    if (!sent.ok()) place_->asks_->Fail(*id, sent);
  }

  // done is called exactly once, maybe before Ask returns. deadline_ms of at most 0 is over at
  // once.
  void Ask(Message message, int64_t deadline_ms, Done done) const {
    typename TypedAsk<Reply>::Decode decode;
    if (!cell_) {
      decode = [codec = codec_](const Frame& frame) { return codec->reply.decode(frame.bytes); };
    }
    const std::optional<AskId> id =
        place_->AddAsk(std::make_unique<TypedAsk<Reply>>(std::move(done), std::move(decode)),
                       address_, deadline_ms);
    if (!id) return;
    if (!cell_) {
      const Status sent = place_->SendMessage(Frame{.kind = FrameKind::kAsk,
                                                    .message = id->value(),
                                                    .to = address_,
                                                    .deadline_ms = deadline_ms,
                                                    .bytes = codec_->message.encode(message)});
      if (!sent.ok()) place_->asks_->Fail(*id, sent);
      return;
    }
    Envelope<Message> envelope{
        std::move(message), ReplySlot<Reply>([asks = place_->asks_, id = *id](Result<Reply> reply) {
          asks->template Answer<Reply>(id, std::move(reply));
        })};
    const Status offered = cell_->Offer(address_.generation, envelope);
    if (!offered.ok()) place_->asks_->Fail(*id, offered);
  }

  void Watch(Watcher watcher) const {
    if (cell_) return cell_->Watch(std::move(watcher));
    place_->Watch(address_, std::move(watcher));
  }
  void Stop() const { place_->Stop(address_); }

  // The ref of another life of the same actor, as an event told it.
  ActorRef Renewed(ActorGeneration generation) const {
    ActorRef ref = *this;
    ref.address_.generation = generation;
    return ref;
  }

 private:
  friend class Place;
  ActorRef(Place* place, const Address& address) : place_(place), address_(address) {}

  Place* place_;
  Address address_;
  std::shared_ptr<Cell<Message>> cell_;                 // null: in another place
  std::shared_ptr<const MessageCodec<Message>> codec_;  // of another place
};

template <class Message>
ActorRef<Message> Place::Spawn(SpawnOptions<Message> options) {
  const auto cell = Add<Message>(ActorId(0), ActorGeneration(1), std::move(options));
  ActorRef<Message> ref(this, cell->address());
  ref.cell_ = cell;
  return ref;
}

template <class Message>
ActorRef<Message> Place::Remote(const Address& address,
                                std::shared_ptr<const MessageCodec<Message>> codec) {
  ActorRef<Message> ref(this, address);
  ref.codec_ = std::move(codec);
  return ref;
}

}  // namespace meshwright::actor
