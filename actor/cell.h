// Cell: one actor in its place: the object, its mailbox, its generation and its end.
//
//   starting --made--> running --failed--> waiting --backoff over--> running (next generation)
//   starting --not made--> ended;  running, waiting --given up, stopped--> ended
//
// With a life ends all that waited for it: its mailbox is emptied, questions in it are answered
// kAborted. So a message is delivered to the generation that it names, or to none. The object is
// made, called and destroyed on the scheduler.
//
// Thread rule: thread-safe; callbacks run outside of the lock, on whatever thread caused them.
// Ownership: held by its place, by refs to it and by its tasks; home and scheduler outlive it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actor/actor.h"
#include "actor/address.h"
#include "actor/frame.h"
#include "actor/lent_reply.h"
#include "actor/mailbox.h"
#include "actor/scheduler.h"
#include "actor/supervision.h"
#include "base/guard.h"
#include "base/mutex.h"

namespace meshwright::actor {

// What has become of an actor. kRestarted: `address` is that of its new life.
struct Event {
  EventKind kind = EventKind::kLost;
  Address address;
  Status why;
};
// Called for every event until the actor's end, which comes exactly once.
using Watcher = std::function<void(const Event&)>;

// What a cell needs of its place.
class CellHome {
 public:
  virtual ~CellHome() = default;
  virtual int64_t NowMs() const = 0;
  virtual Decision Decide(const Address& child, const std::string& kind, ChildEvent event) = 0;
  virtual void Restarted(ActorId child) = 0;
  virtual void Escalate(const Address& child, const Status& why) = 0;
  virtual void Ended(ActorId child) = 0;
};

class CellBase {
 public:
  CellBase(CellHome& home, Scheduler& scheduler, Address address, std::string kind)
      : home_(home), scheduler_(scheduler), kind_(std::move(kind)), address_(address) {}
  virtual ~CellBase() = default;

  // The slot is completed in every case: by the actor, or with the error that is returned. Errors:
  // the codec's; those of actor/address.h.
  virtual Status OfferBytes(ActorGeneration generation, std::string bytes,
                            ReplySlot<Bytes> reply) = 0;
  // Ends it for good, unless it has ended. kind: kStopped or kGaveUp.
  virtual void End(EventKind kind, const Status& why) = 0;
  virtual size_t depth() const = 0;
  virtual size_t bound() const = 0;

  // Of the living generation, or of the last one.
  Address address() const;
  const std::string& kind() const { return kind_; }
  // An actor that has ended tells its end at once.
  void Watch(Watcher watcher);
  // How long the message that it handles, or its making, has taken; 0: neither is under way.
  int64_t BusyMs(int64_t now_ms) const;

 protected:
  enum class State : uint8_t { kStarting, kRunning, kWaiting, kEnded };

  // Whether a message for this generation may come in.
  Status CheckOpen(ActorGeneration generation) const MW_REQUIRES(mutex_);
  // Tells all watchers that there are.
  void Tell(const Event& event);
  // What those hear who waited for a life that is over, by end_.
  Status EndError() const MW_REQUIRES(mutex_);

  CellHome& home_;
  Scheduler& scheduler_;
  const std::string kind_;
  std::atomic<int64_t> busy_since_ms_{-1};
  mutable Mutex mutex_;
  Address address_ MW_GUARDED_BY(mutex_);
  State state_ MW_GUARDED_BY(mutex_) = State::kStarting;
  Event end_ MW_GUARDED_BY(mutex_);  // of kEnded; while kWaiting, of the life before
  std::vector<Watcher> watchers_ MW_GUARDED_BY(mutex_);
};

template <class Message>
struct Envelope {
  Message message;
  ReplySlot<ReplyOf<Message>> reply;
};

template <class Message>
struct SpawnOptions {
  std::string kind = "actor";  // for the supervision table and messages
  ActorFactory<Message> factory = nullptr;
  size_t mailbox = 64;
  Scheduler* scheduler = nullptr;                             // null: the place's own loop
  std::optional<MessageCodec<Message>> codec = std::nullopt;  // so that other places can send to it
  std::function<void(Status)> started = nullptr;  // once its first life has begun, or cannot
};

template <class Message>
class Cell final : public CellBase, public std::enable_shared_from_this<Cell<Message>> {
 public:
  Cell(CellHome& home, Address address, SpawnOptions<Message> options)
      : CellBase(home, *options.scheduler, address, options.kind),
        options_(std::move(options)),
        mailbox_(options_.mailbox) {}

  void Start() {
    const bool posted =
        scheduler_.Post([self = this->shared_from_this()] { self->MakeOnLoop(true); });
    if (!posted) End(EventKind::kStopped, NoScheduler());
  }

  // The envelope is left as it was unless OK. Errors: those of actor/address.h.
  Status Offer(ActorGeneration generation, Envelope<Message>& envelope) {
    {
      const MutexLock lock(mutex_);
      MW_TRY(CheckOpen(generation));
      if (mailbox_.Offer(std::move(envelope)) != Offered::kTaken) {
        return FullError(address_, mailbox_.bound());
      }
    }
    Wake();
    return OkStatus();
  }

  Status OfferBytes(ActorGeneration generation, std::string bytes,
                    ReplySlot<Bytes> reply) override {
    auto slot = std::make_shared<ReplySlot<Bytes>>(std::move(reply));
    const Status offered = [&]() -> Status {
      if (!options_.codec) {
        return Unimplemented(ToString(address()) +
                             " takes no messages from other places: it has no codec");
      }
      MW_ASSIGN_OR_RETURN(Message message, options_.codec->message.decode(bytes));
      Envelope<Message> envelope{std::move(message), {}};
      if (slot->wanted()) envelope.reply = Encoding(slot);
      const Status taken = Offer(generation, envelope);
      // Before the envelope's own slot, which answers less exactly.
      if (!taken.ok()) slot->Complete(Fail(taken));
      return taken;
    }();
    if (!offered.ok()) slot->Complete(Fail(offered));
    return offered;
  }

  void End(EventKind kind, const Status& why) override {
    std::vector<Envelope<Message>> waiting;
    Event event;
    {
      const MutexLock lock(mutex_);
      if (state_ == State::kEnded) return;
      state_ = State::kEnded;
      event = end_ = Event{kind, address_, why};
      waiting = mailbox_.Close();
    }
    Answer(waiting);
    // The object dies where it lived. A scheduler that has ended leaves that to the cell's end.
    (void)scheduler_.Post([self = this->shared_from_this()] { self->DropOnLoop(); });
    home_.Ended(event.address.id);
    Tell(event);
  }

  size_t depth() const override { return mailbox_.depth(); }
  size_t bound() const override { return mailbox_.bound(); }

 private:
  static constexpr int kTurn = 16;
  static Status NoScheduler() { return Cancelled("its scheduler has ended"); }

  ReplySlot<ReplyOf<Message>> Encoding(const std::shared_ptr<ReplySlot<Bytes>>& slot) const {
    return ReplySlot<ReplyOf<Message>>([slot, encode = options_.codec->reply.encode](auto answer) {
      if (!answer.has_value()) return slot->Complete(Fail(answer.error()));
      slot->Complete(Bytes{encode(*answer)});
    });
  }

  void Wake() {
    if (awake_.exchange(true)) return;
    if (scheduler_.Post([self = this->shared_from_this()] { self->RunOnLoop(); })) return;
    End(EventKind::kStopped, NoScheduler());
  }

  void RunOnLoop() {
    awake_ = false;
    for (int i = 0; i < kTurn; ++i) {
      std::optional<Envelope<Message>> next;
      {
        const MutexLock lock(mutex_);
        if (state_ != State::kRunning) return;
        next = mailbox_.Take();
      }
      if (!next) return;
      busy_since_ms_ = home_.NowMs();
      const Status outcome = ReceiveOnLoop(*std::move(next));
      busy_since_ms_ = -1;
      if (!outcome.ok()) return FailOnLoop(outcome);
    }
    Wake();
  }

  // Whoever asked what the actor fails of hears that, and not only that the slot was destroyed.
  Status ReceiveOnLoop(Envelope<Message> next) {
    std::shared_ptr<LentReply<ReplyOf<Message>>> lent;  // null: nobody waits
    ReplySlot<ReplyOf<Message>> slot = LentReply<ReplyOf<Message>>::Lend(next.reply, lent);
    const Status outcome = Guarded(
        "an actor", [&] { return actor_->Receive(std::move(next.message), std::move(slot)); });
    const bool kept = lent.use_count() != 1;
    if (!outcome.ok() && !kept) lent->set_why(DeadError(address(), outcome));
    return outcome;
  }

  // Begins a life. A first one that cannot be made is the end.
  void MakeOnLoop(bool first) {
    busy_since_ms_ = home_.NowMs();
    Result<std::unique_ptr<Actor<Message>>> made =
        Guarded("making an actor", [this] { return options_.factory(); });
    busy_since_ms_ = -1;
    if (!made.has_value()) {
      if (!first) return FailOnLoop(made.error());
      // Its id is free again before anybody hears.
      End(EventKind::kGaveUp, made.error());
      if (options_.started) options_.started(made.error());
      return;
    }
    Address now;
    {
      const MutexLock lock(mutex_);
      if (state_ == State::kEnded) return;
      if (!first) address_.generation = ActorGeneration(address_.generation.value() + 1);
      actor_ = std::move(*made);
      state_ = State::kRunning;
      now = address_;
    }
    if (first) {
      if (options_.started) options_.started(OkStatus());
      return Wake();
    }
    home_.Restarted(now.id);
    Tell(Event{EventKind::kRestarted, now, OkStatus()});
  }

  void FailOnLoop(const Status& why) {
    std::vector<Envelope<Message>> waiting;
    Address failed;
    {
      const MutexLock lock(mutex_);
      if (state_ == State::kEnded) return;
      state_ = State::kWaiting;
      end_ = Event{EventKind::kGaveUp, address_, why};
      failed = address_;
      waiting = mailbox_.Drain();
    }
    DropOnLoop();
    Answer(waiting);
    const Decision decision = home_.Decide(failed, kind_, ChildEvent::kFailed);
    if (decision.verdict == Verdict::kRestart) {
      const bool posted = scheduler_.PostAfter(
          decision.after_ms, [self = this->shared_from_this()] { self->MakeOnLoop(false); });
      return posted ? void() : End(EventKind::kStopped, NoScheduler());
    }
    End(EventKind::kGaveUp, why);
    if (decision.verdict == Verdict::kEscalate) home_.Escalate(failed, why);
  }

  void DropOnLoop() { actor_.reset(); }

  // Those who waited in the mailbox of a life that is over.
  void Answer(std::vector<Envelope<Message>>& waiting) {
    Status error;
    {
      const MutexLock lock(mutex_);
      error = EndError();
    }
    for (Envelope<Message>& envelope : waiting) envelope.reply.Complete(Fail(error));
  }

  const SpawnOptions<Message> options_;
  Mailbox<Envelope<Message>> mailbox_;
  std::atomic<bool> awake_{false};
  std::unique_ptr<Actor<Message>> actor_;  // of the scheduler's tasks
};

}  // namespace meshwright::actor
