// OwnerLoop: an object's mailbox and the loop that hands its messages to it, one at a time, in
// order.
//
// The step from "closures on an executor" to an actor: what can be asked of the owner is one type,
// and how much may wait is a number.
//
//   struct Resize { int64_t rows; };
//   struct Flush {};
//   using Message = std::variant<Resize, Flush>;
//   OwnerLoop<Message> loop(scheduler, 16, [this](Message message) { std::visit(...); });
//
// An offer costs no memory beyond what the scheduler's Post does, and a wake-up is posted only when
// the loop is not awake already. After a few messages the loop posts itself again, so that owners
// on one scheduler take turns.
//
// Thread rule: thread-safe; the handler runs on the scheduler. Ownership: the scheduler has ended,
// or runs nothing any more, before the loop is destroyed. What it still holds then is destroyed
// unhandled, so that a ReplySlot in it is answered.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "actor/mailbox.h"
#include "actor/scheduler.h"

namespace meshwright::actor {

template <class Message>
class OwnerLoop {
 public:
  using Handler = std::function<void(Message)>;
  using Credit = typename Mailbox<Message>::Credit;

  OwnerLoop(Scheduler& scheduler, size_t bound, Handler handler)
      : scheduler_(scheduler), mailbox_(bound), handler_(std::move(handler)) {}

  // The message is left as it was unless kTaken. One that is taken when the scheduler has ended is
  // not handled any more.
  [[nodiscard]] Offered Offer(Message&& message) {
    return Woken(mailbox_.Offer(std::move(message)));
  }
  [[nodiscard]] Offered Offer(Credit credit, Message&& message) {
    return Woken(mailbox_.Offer(std::move(credit), std::move(message)));
  }
  [[nodiscard]] std::optional<Credit> Reserve() { return mailbox_.Reserve(); }
  // Refuses messages from now on; returns those that were not handled.
  std::vector<Message> Close() { return mailbox_.Close(); }

  const Mailbox<Message>& mailbox() const { return mailbox_; }

 private:
  static constexpr int kTurn = 16;

  Offered Woken(Offered offered) {
    if (offered == Offered::kTaken) (void)Wake();
    return offered;
  }
  // False when the scheduler has ended.
  bool Wake() {
    if (awake_.exchange(true)) return true;
    if (scheduler_.Post([this] { Run(); })) return true;
    awake_ = false;
    return false;
  }
  void Run() {
    // Before the first look: what is offered from now on wakes the loop again.
    awake_ = false;
    do {
      for (int i = 0; i < kTurn; ++i) {
        std::optional<Message> message = mailbox_.Take();
        if (!message) return;
        handler_(std::move(*message));
      }
      // A scheduler that ends runs what it has taken: the rest is handled in this turn.
    } while (!Wake());
  }

  Scheduler& scheduler_;
  Mailbox<Message> mailbox_;
  const Handler handler_;
  std::atomic<bool> awake_{false};
};

}  // namespace meshwright::actor
