// Places with actors that answer, keep silent, drop questions, fail and throw, under kills, delays,
// reordering and full mailboxes, in an order drawn from a seed. Checked after every step:
//   - every Ask completes exactly once, and in the end every one has;
//   - no mailbox holds more than its bound, no link more than its credits;
//   - a message is delivered to the generation that it names, or to none;
//   - no actor is restarted more often than its budget allows;
//   - a watcher hears of exactly one end, and of nothing behind it.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actor/ref.h"
#include "tests/scale.h"
#include "tests/unit/actor/sim_scheduler.h"

namespace meshwright::actor {
namespace {

struct Work {
  using Reply = Bytes;
  uint64_t generation = 0;  // of the actor that it was sent to
  int64_t behaviour = 0;
};

MessageCodec<Work> WorkCodec() {
  return {{[](const Work& work) {
             return std::to_string(work.generation) + " " + std::to_string(work.behaviour);
           },
           [](std::string_view text) -> Result<Work> {
             const size_t space = text.find(' ');
             if (space == std::string_view::npos) return Fail(InvalidArgument("no work"));
             return Work{std::stoull(std::string(text.substr(0, space))),
                         std::stoll(std::string(text.substr(space + 1)))};
           }},
          CodecOfBytes()};
}

// One life of a worker.
class SimActor final : public Actor<Work> {
 public:
  explicit SimActor(uint64_t generation) : generation_(generation) {}

  Status Receive(Work work, ReplySlot<Bytes> reply) override {
    EXPECT_EQ(work.generation, generation_) << "a message of another life was delivered";
    switch (work.behaviour) {
      case 0:
        kept_.push_back(std::move(reply));  // answered by a later message, or never
        return OkStatus();
      case 1:
        return OkStatus();  // dropped
      case 2:
        return Internal("it failed");
      case 3:
        throw std::runtime_error("it threw");
      case 4:
        for (ReplySlot<Bytes>& slot : kept_) slot.Complete(Bytes{"late"});
        kept_.clear();
        [[fallthrough]];
      default:
        reply.Complete(Bytes{"done"});
        return OkStatus();
    }
  }

 private:
  const uint64_t generation_;
  std::deque<ReplySlot<Bytes>> kept_;
};

constexpr size_t kMailbox = 4;
constexpr size_t kCredits = 6;
constexpr int kRestarts = 3;
constexpr int64_t kPerMs = 5'000;

SupervisionTable Table() {
  return {{.child = "*",
           .event = ChildEvent::kFailed,
           .verdict = Verdict::kRestart,
           .backoff_ms = 20,
           .backoff_max_ms = 200,
           .restarts = kRestarts,
           .per_ms = kPerMs,
           .spent = Verdict::kGiveUp},
          {.child = "fragile", .event = ChildEvent::kFailed, .verdict = Verdict::kEscalate}};
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : world_(seed) {
    for (int i = 0; i < 3; ++i) AddHome();
  }
  ~Simulation() {
    while (!homes_.empty()) Kill(homes_.begin()->first);
  }

  void Act() {
    switch (world_.Draw(14)) {
      case 0:
        Spawn();
        break;
      case 1:
        SpawnElsewhere();
        break;
      case 2:
        Watch();
        break;
      case 3:
        if (world_.Draw(6) == 0 && !known_.empty()) homes_.at(AnyHome()).place->Stop(AnyAddress());
        break;
      case 4:
        if (world_.Draw(12) == 0) {
          Kill(AnyHome());
          AddHome();
        }
        break;
      case 5:
        if (!known_.empty()) {
          const Address to = AnyAddress();
          (void)RefFrom(AnyHome(), to).Tell(Work{to.generation.value(), world_.Draw(8)});
        }
        break;
      case 6:
        world_.Advance(world_.Draw(40));
        break;
      default:
        Ask();
    }
    Check();
  }
  void Run(int64_t steps) {
    for (; steps > 0 && world_.RunOne(); --steps) Check();
  }
  // Until nothing is under way. Timers of actors that wait for a restart come to their end, too.
  void Settle() {
    for (int i = 0; i < 100'000; ++i) {
      if (!world_.RunOne() && !world_.AdvanceToNext()) return;
      Check();
    }
    ADD_FAILURE() << "it never comes to rest";
  }
  void CheckTheEnd() {
    Settle();
    for (size_t i = 0; i < completions_.size(); ++i) {
      EXPECT_EQ(completions_[i], 1) << "ask " << i;
    }
    for (const auto& [id, home] : homes_) {
      EXPECT_EQ(home.place->pending_asks(), 0u);
      for (const auto& [other, unused] : homes_) EXPECT_EQ(home.place->unreplied(other), 0u);
    }
    while (!homes_.empty()) Kill(homes_.begin()->first);
    Settle();
    for (size_t i = 0; i < ends_.size(); ++i) EXPECT_EQ(ends_[i], 1) << "watch " << i;
  }
  int64_t answered() const { return answered_; }
  int64_t failed() const { return failed_; }
  int64_t restarts() const { return restarts_; }

 private:
  struct Net final : Transport {
    Simulation* sim = nullptr;
    PlaceId from{0};
    bool Send(PlaceId to, Frame frame) override { return sim->Send(from, to, std::move(frame)); }
  };
  struct Home {
    std::unique_ptr<SimScheduler> loop;
    std::vector<std::unique_ptr<SimScheduler>> threads;
    std::unique_ptr<Net> net;
    std::unique_ptr<Registry> registry;
    std::unique_ptr<Place> place;
  };

  void AddHome() {
    const PlaceId id(next_place_++);
    Home& home = homes_[id];
    home.loop = std::make_unique<SimScheduler>(world_);
    for (int i = 0; i < 2; ++i) home.threads.push_back(std::make_unique<SimScheduler>(world_));
    home.net = std::make_unique<Net>();
    home.net->sim = this;
    home.net->from = id;
    home.registry = std::make_unique<Registry>();
    const Status added = home.registry->Add<Work>(
        "work",
        [](std::string_view args) -> Result<std::unique_ptr<Actor<Work>>> {
          if (args == "bad") return Fail(InvalidArgument("bad arguments"));
          return std::unique_ptr<Actor<Work>>(std::make_unique<SimActor>(1));
        },
        WorkCodec());
    EXPECT_TRUE(added.ok());
    PlaceParts parts;
    parts.id = id;
    parts.clock = &world_.clock();
    parts.loop = home.loop.get();
    parts.transport = home.net.get();
    parts.registry = home.registry.get();
    // An actor that fails in another place is for its spawner to make again.
    parts.supervision = Table();
    parts.supervision.push_back(
        {.child = "work", .event = ChildEvent::kFailed, .verdict = Verdict::kGiveUp});
    parts.escalate = [this](const Address&, const Status&) { ++escalated_; };
    parts.mailbox = kMailbox;
    parts.link_credits = kCredits;
    home.place = std::make_unique<Place>(std::move(parts));
  }

  void Kill(PlaceId id) {
    Home home = std::move(homes_.at(id));
    homes_.erase(id);
    home.loop->Kill();
    for (const auto& thread : home.threads) thread->Kill();
    home.place.reset();
    for (const auto& [other, unused] : homes_) {
      world_.Add(this, world_.Draw(30), [this, other = other, id] {
        const auto it = homes_.find(other);
        if (it != homes_.end()) it->second.place->OnPlaceLost(id, Unavailable("it was killed"));
      });
    }
  }

  bool Send(PlaceId from, PlaceId to, Frame frame) {
    if (!homes_.contains(to)) return false;
    // Any order: the delays differ.
    world_.Add(this, world_.Draw(20), [this, from, to, bytes = EncodeFrame(frame)] {
      const auto it = homes_.find(to);
      if (it == homes_.end()) return;
      Result<Frame> decoded = DecodeFrame(bytes);
      ASSERT_TRUE(decoded.has_value()) << decoded.error();
      it->second.place->OnFrame(from, std::move(*decoded));
    });
    return true;
  }

  PlaceId AnyHome() {
    auto it = homes_.begin();
    std::advance(it, world_.Draw(static_cast<int64_t>(homes_.size())));
    return it->first;
  }
  Address AnyAddress() {
    return known_[static_cast<size_t>(world_.Draw(static_cast<int64_t>(known_.size())))];
  }

  void Spawn() {
    Home& home = homes_.at(AnyHome());
    auto life = std::make_shared<uint64_t>(0);
    SpawnOptions<Work> options;
    options.kind = world_.Draw(8) == 0 ? "fragile" : "sturdy";
    options.mailbox = kMailbox;
    options.scheduler = home.threads[static_cast<size_t>(world_.Draw(2))].get();
    options.codec = WorkCodec();
    options.factory = [this, life]() -> Result<std::unique_ptr<Actor<Work>>> {
      if (*life > 0 && world_.Draw(8) == 0) return Fail(Unavailable("not now"));
      return std::unique_ptr<Actor<Work>>(std::make_unique<SimActor>(++*life));
    };
    const ActorRef<Work> ref = home.place->Spawn<Work>(std::move(options));
    known_.push_back(ref.address());
    locals_.emplace(ref.address(), ref);
    auto times = std::make_shared<std::deque<int64_t>>();
    const size_t watch = NewWatch();
    ref.Watch([this, times, watch, ref](const Event& event) {
      OnEvent(watch, event);
      if (event.kind != EventKind::kRestarted) return;
      ++restarts_;
      known_.push_back(event.address);
      locals_.emplace(event.address, ref.Renewed(event.address.generation));
      times->push_back(world_.now_ms());
      while (times->front() <= world_.now_ms() - kPerMs) times->pop_front();
      EXPECT_LE(times->size(), static_cast<size_t>(kRestarts)) << "beyond the budget";
    });
  }

  void SpawnElsewhere() {
    const PlaceId to = AnyHome();
    const size_t ask = NewAsk();
    homes_.at(AnyHome()).place->SpawnAt(Address{to, ActorId(0), ActorGeneration(0)},
                                        world_.Draw(6) == 0 ? "unknown" : "work",
                                        world_.Draw(6) == 0 ? "bad" : "good", 1 + world_.Draw(400),
                                        [this, ask](Result<Address> made) {
                                          Complete(ask, made.has_value());
                                          if (made.has_value()) known_.push_back(*made);
                                        });
  }

  ActorRef<Work> RefFrom(PlaceId home, const Address& to) {
    const auto local = locals_.find(to);
    if (local != locals_.end() && home == to.place) return local->second;
    return homes_.at(home).place->Remote<Work>(
        to, std::make_shared<const MessageCodec<Work>>(WorkCodec()));
  }

  void Ask() {
    if (known_.empty()) return;
    const Address to = AnyAddress();
    const size_t ask = NewAsk();
    RefFrom(AnyHome(), to)
        .Ask(Work{to.generation.value(), world_.Draw(40)}, world_.Draw(300),
             [this, ask](const Result<Bytes>& reply) { Complete(ask, reply.has_value()); });
  }

  void Watch() {
    if (known_.empty()) return;
    const size_t watch = NewWatch();
    homes_.at(AnyHome()).place->Watch(AnyAddress(),
                                      [this, watch](const Event& event) { OnEvent(watch, event); });
  }

  size_t NewAsk() {
    completions_.push_back(0);
    return completions_.size() - 1;
  }
  void Complete(size_t ask, bool ok) {
    EXPECT_EQ(++completions_[ask], 1) << "ask " << ask << " completed twice";
    ++(ok ? answered_ : failed_);
  }
  size_t NewWatch() {
    ends_.push_back(0);
    return ends_.size() - 1;
  }
  void OnEvent(size_t watch, const Event& event) {
    EXPECT_EQ(ends_[watch], 0) << "an event behind the end";
    if (event.kind != EventKind::kRestarted) ++ends_[watch];
  }

  void Check() {
    for (const auto& [id, home] : homes_) {
      for (const auto& cell : home.place->cells()) EXPECT_LE(cell->depth(), kMailbox);
      for (const auto& [other, unused] : homes_) {
        EXPECT_LE(home.place->unreplied(other), kCredits);
      }
    }
  }

  SimWorld world_;
  uint64_t next_place_ = 1;
  std::map<PlaceId, Home> homes_;
  std::vector<Address> known_;
  std::map<Address, ActorRef<Work>> locals_;
  std::vector<int> completions_;
  std::vector<int> ends_;
  int64_t answered_ = 0, failed_ = 0, restarts_ = 0, escalated_ = 0;
};

TEST(PlaceSimulation, HoldsItsPromisesInRandomHistories) {
  constexpr uint64_t kHistories = kSanitizedBuild ? 60 : 400;
  int64_t answered = 0, failed = 0, restarts = 0;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    for (int round = 0; round < 250; ++round) {
      simulation.Act();
      simulation.Run(round % 7);
    }
    simulation.CheckTheEnd();
    answered += simulation.answered();
    failed += simulation.failed();
    restarts += simulation.restarts();
    if (::testing::Test::HasFailure()) return;
  }
  // The histories are about something.
  EXPECT_GT(answered, static_cast<int64_t>(kHistories));
  EXPECT_GT(failed, static_cast<int64_t>(kHistories));
  EXPECT_GT(restarts, static_cast<int64_t>(kHistories));
}

}  // namespace
}  // namespace meshwright::actor
