// Place: a process's actors, and its way to those of other places. With ActorRef (actor/ref.h) it
// is all that a user of actors calls:
//
//   Place place({.id = PlaceId(1), .clock = &SystemClock(), .loop = &scheduler});
//   ActorRef<Guess> oracle = place.Spawn<Guess>({.kind = "oracle", .factory = MakeOracle});
//   oracle.Ask({42}, 1000, [](Result<bool> answer) { ... });
//
// The same calls reach an actor of another place: place.Remote<Guess>(address, codec). Tell arrives
// at most once. Ask is a Tell with a slot for the answer and a deadline, and completes exactly
// once: with the answer, or with one of the errors of actor/address.h. Watch tells of restarts and
// of the end, which comes exactly once.
//
// A failed actor is handled by the supervision table; "escalate" goes to PlaceParts::escalate, the
// one who supervises this place. An actor that is at one message, or at its making, for silent_ms
// is silent: its thread cannot be taken from it, so a row that says "restart" escalates. It has
// ended before that, and those who wait for it are told.
//
// Thread rule: thread-safe. Callbacks run on whatever thread completes them: the caller's, the
// actor's, the loop. Ownership: clock, transport and registry outlive the place. All schedulers
// have ended, or run nothing any more, before it is destroyed, which ends its actors and questions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actor/address.h"
#include "actor/ask_table.h"
#include "actor/cell.h"
#include "actor/link_table.h"
#include "actor/registry.h"
#include "actor/scheduler.h"
#include "actor/supervision.h"
#include "actor/transport.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace meshwright::actor {

struct PlaceParts {
  PlaceId id{0};
  const Clock* clock = nullptr;
  Scheduler* loop = nullptr;           // timers, and actors that have no scheduler of their own
  Transport* transport = nullptr;      // null: there are no other places
  const Registry* registry = nullptr;  // what other places may spawn here; null: nothing
  // Where an actor runs that another place spawns; null: on the loop.
  std::function<Scheduler*(ActorId)> scheduler_of = nullptr;
  SupervisionTable supervision = DefaultSupervision();
  std::function<void(const Address&, const Status&)> escalate = nullptr;
  // Told behind the end of each actor of this place.
  std::function<void(ActorId)> ended = nullptr;
  size_t mailbox = 64;        // of actors that other places spawn
  size_t link_credits = 256;  // messages to one place that have not been replied to
  size_t max_asks = 65'536;
  int64_t silent_ms = 0;  // 0: silence is not looked for
};

template <class Message>
class ActorRef;

class Place final : private CellHome {
 public:
  explicit Place(PlaceParts parts);
  ~Place() override;
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // The actor is made on its scheduler; what is sent meanwhile waits in its mailbox.
  template <class Message>
  ActorRef<Message> Spawn(SpawnOptions<Message> options);
  template <class Message>
  ActorRef<Message> Remote(const Address& address,
                           std::shared_ptr<const MessageCodec<Message>> codec);
  // Has another place make an actor of a type of its registry. wanted: its id and generation there,
  // 0 for any. done: where it is; errors as of Ask, and the factory's.
  void SpawnAt(const Address& wanted, std::string type, std::string args, int64_t deadline_ms,
               std::function<void(Result<Address>)> done);
  // Of any place. Stopping an actor that is gone does nothing.
  void Stop(const Address& address);
  void Watch(const Address& address, Watcher watcher);

  // From the transport.
  void OnFrame(PlaceId from, Frame frame);
  // A place has ended: every question that was asked of it completes, kAborted.
  void OnPlaceLost(PlaceId place, const Status& cause);

  PlaceId id() const { return parts_.id; }
  size_t pending_asks() const { return asks_->size(); }
  size_t unreplied(PlaceId place) const { return links_.unreplied(place); }
  int64_t dropped_tells() const { return dropped_tells_; }  // that other places refused
  // For tests and listings.
  std::vector<std::shared_ptr<CellBase>> cells() const;

 private:
  template <class Message>
  friend class ActorRef;

  // CellHome.
  int64_t NowMs() const override { return parts_.clock->NowMs(); }
  Decision Decide(const Address& child, const std::string& kind, ChildEvent event) override;
  void Restarted(ActorId child) override;
  void Escalate(const Address& child, const Status& why) override;
  void Ended(ActorId child) override;

  template <class Message>
  std::shared_ptr<Cell<Message>> Add(ActorId id, ActorGeneration generation,
                                     SpawnOptions<Message> options);
  std::shared_ptr<CellBase> Find(ActorId id) const;
  // Nothing when there are too many; `ask` is failed then.
  std::optional<AskId> AddAsk(std::unique_ptr<PendingAsk> ask, const Address& asked,
                              int64_t deadline_ms);
  void SweepAt(int64_t due_ms);
  void Sweep(int64_t due_ms);
  void CheckSilent();
  void CheckSilentLater();
  // To another place, using a credit.
  Status SendMessage(Frame frame);
  void Answer(PlaceId to, uint64_t message, const Address& about, Result<Bytes> reply);
  void OnSpawn(PlaceId from, Frame frame);
  void OnMessage(PlaceId from, Frame frame);

  const PlaceParts parts_;
  const std::shared_ptr<AskTable> asks_;  // shared with the slots of questions
  LinkTable links_;
  std::atomic<int64_t> dropped_tells_{0};
  mutable Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<CellBase>> cells_ MW_GUARDED_BY(mutex_);
  uint64_t next_actor_ MW_GUARDED_BY(mutex_) = 1;
  // Of the earliest sweep that is posted; -1: none.
  int64_t sweep_due_ms_ MW_GUARDED_BY(mutex_) = -1;
  Supervisor supervisor_ MW_GUARDED_BY(mutex_);
};

template <class Message>
std::shared_ptr<Cell<Message>> Place::Add(ActorId id, ActorGeneration generation,
                                          SpawnOptions<Message> options) {
  if (options.scheduler == nullptr) options.scheduler = parts_.loop;
  std::shared_ptr<Cell<Message>> cell;
  {
    const MutexLock lock(mutex_);
    if (id.value() == 0) id = ActorId(next_actor_);
    if (cells_.contains(id.value())) return nullptr;
    next_actor_ = std::max(next_actor_, id.value() + 1);
    cell = std::make_shared<Cell<Message>>(static_cast<CellHome&>(*this),
                                           Address{parts_.id, id, generation}, std::move(options));
    cells_.emplace(id.value(), cell);
  }
  cell->Start();
  return cell;
}

}  // namespace meshwright::actor
