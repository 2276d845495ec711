// Actor: what its owner writes. An object that is touched only by the loop that hands it its
// messages, one at a time, so its state needs no lock.
//
//   struct Guess { int64_t number; using Reply = bool; };
//   class Oracle final : public actor::Actor<Guess> {
//     Status Receive(Guess guess, ReplySlot<bool> reply) override {
//       reply.Complete(guess.number == 42);
//       return OkStatus();
//     }
//   };
//
// Thread rule: Receive and the destructor run on the actor's scheduler, or the destructor where the
// place dies. Receive must not wait for another actor's answer: it asks, and goes on in the answer.
#pragma once

#include <functional>
#include <memory>

#include "actor/codec.h"
#include "actor/reply.h"
#include "base/result.h"

namespace meshwright::actor {

template <class Message>
class Actor {
 public:
  using Reply = ReplyOf<Message>;
  virtual ~Actor() = default;
  // An error, or an exception, is the end of this life of the actor: what waits for it is answered
  // kAborted and its supervisor decides. What is wrong with one message only goes into its reply.
  virtual Status Receive(Message message, ReplySlot<Reply> reply) = 0;
};

// Makes the object anew for each life.
template <class Message>
using ActorFactory = std::function<Result<std::unique_ptr<Actor<Message>>>()>;

}  // namespace meshwright::actor
