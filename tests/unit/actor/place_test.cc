// Places on real threads: what each call promises, one by one. Random histories are in
// place_sim_test.cc.
#include "actor/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "actor/ref.h"

namespace meshwright::actor {
namespace {

using ::testing::HasSubstr;

struct Count {
  using Reply = Bytes;
  std::string text;
};

MessageCodec<Count> CountCodec() {
  return {{[](const Count& m) { return m.text; },
           [](std::string_view text) -> Result<Count> {
             if (text == "undecodable") return Fail(InvalidArgument("no such text"));
             return Count{std::string(text)};
           }},
          CodecOfBytes()};
}

std::shared_ptr<const MessageCodec<Count>> SharedCodec() {
  return std::make_shared<const MessageCodec<Count>>(CountCodec());
}

// Holds an actor in a message.
struct Gate {
  std::promise<void> entered, open;
  std::future<void> opened = open.get_future();
};

// Counts what it is told; some texts make it do something else.
class Counter final : public Actor<Count> {
 public:
  explicit Counter(Gate* gate) : gate_(gate) {}
  Status Receive(Count message, ReplySlot<Bytes> reply) override {
    if (message.text == "fail") return Internal("as it was told");
    if (message.text == "wait" && gate_ != nullptr) {
      gate_->entered.set_value();
      gate_->opened.wait();
    }
    if (message.text == "keep") {
      kept_ = std::move(reply);
      return OkStatus();
    }
    reply.Complete(Bytes{std::to_string(++count_)});
    return OkStatus();
  }

 private:
  Gate* gate_;
  int count_ = 0;
  ReplySlot<Bytes> kept_;
};

// A process: a place with a thread for itself and one for its actors.
struct Process {
  explicit Process(uint64_t number, Transport* transport = nullptr,
                   const Registry* registry = nullptr) {
    PlaceParts parts;
    parts.id = PlaceId(number);
    parts.clock = &SystemClock();
    parts.loop = &loop;
    parts.transport = transport;
    parts.registry = registry;
    parts.scheduler_of = [this](ActorId) { return &actors; };
    parts.supervision = {{.child = "*",
                          .event = ChildEvent::kFailed,
                          .verdict = Verdict::kRestart,
                          .backoff_ms = 0,
                          .backoff_max_ms = 0,
                          .restarts = 1,
                          .spent = Verdict::kEscalate}};
    parts.escalate = [this](const Address&, const Status& why) { escalated.set_value(why); };
    parts.mailbox = 2;
    parts.link_credits = 4;
    place.emplace(std::move(parts));
  }
  ~Process() { End(); }
  void End() {
    actor_thread.Stop();
    loop_thread.Stop();
    place.reset();
  }
  ActorRef<Count> Spawn(Gate* gate = nullptr) {
    SpawnOptions<Count> options;
    options.factory = [gate]() -> Result<std::unique_ptr<Actor<Count>>> {
      return std::unique_ptr<Actor<Count>>(std::make_unique<Counter>(gate));
    };
    options.mailbox = 2;
    options.scheduler = &actors;
    options.codec = CountCodec();
    return place->Spawn<Count>(std::move(options));
  }

  Executor loop_thread{"place"};
  Executor actor_thread{"actors"};
  ExecutorScheduler loop{loop_thread};
  ExecutorScheduler actors{actor_thread};
  std::promise<Status> escalated;
  std::optional<Place> place;
};

std::future<Result<Bytes>> Ask(const ActorRef<Count>& ref, const std::string& text,
                               int64_t deadline_ms = 60'000) {
  auto promise = std::make_shared<std::promise<Result<Bytes>>>();
  ref.Ask(Count{text}, deadline_ms,
          [promise](Result<Bytes> reply) { promise->set_value(std::move(reply)); });
  return promise->get_future();
}

StatusCode CodeOf(std::future<Result<Bytes>> reply) {
  const Result<Bytes> got = reply.get();
  return got.has_value() ? StatusCode::kOk : got.error().code();
}

TEST(Place, AsksAreAnsweredInOrderAndTellsCount) {
  Process process(1);
  const ActorRef<Count> ref = process.Spawn();
  ASSERT_TRUE(ref.Tell(Count{"x"}).ok());
  EXPECT_EQ(Ask(ref, "y").get()->data, "2");
  EXPECT_EQ(Ask(ref, "z").get()->data, "3");
}

TEST(Place, AFullMailboxRefusesAtOnce) {
  Gate gate;
  Process process(1);
  const ActorRef<Count> ref = process.Spawn(&gate);
  auto first = Ask(ref, "wait");
  // Else room is made while the mailbox is being filled.
  gate.entered.get_future().wait();
  std::vector<std::future<Result<Bytes>>> more;
  Status refused;
  while (refused.ok()) refused = ref.Tell(Count{"x"});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("full with 2 messages"));
  EXPECT_EQ(CodeOf(Ask(ref, "y")), StatusCode::kResourceExhausted);
  gate.open.set_value();
  EXPECT_EQ(first.get().value().data, "1");
}

TEST(Place, ADeadlineEndsAQuestionThatIsKept) {
  Process process(1);
  const ActorRef<Count> ref = process.Spawn();
  const Result<Bytes> late = Ask(ref, "keep", 5).get();
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.error().message(), HasSubstr("did not answer within 5 ms"));
  EXPECT_EQ(process.place->pending_asks(), 0u);
}

TEST(Place, AFailedActorIsAnotherGenerationAndTheOldOneIsGone) {
  Process process(1);
  const ActorRef<Count> ref = process.Spawn();
  std::promise<Event> restarted;
  ref.Watch([&](const Event& event) {
    if (event.kind == EventKind::kRestarted) restarted.set_value(event);
  });
  auto kept = Ask(ref, "keep");
  EXPECT_EQ(CodeOf(Ask(ref, "fail")), StatusCode::kAborted);
  EXPECT_EQ(CodeOf(std::move(kept)), StatusCode::kAborted);
  const Event event = restarted.get_future().get();
  EXPECT_EQ(event.address.generation.value(), 2u);
  const Status gone = ref.Tell(Count{"x"});
  EXPECT_EQ(gone.code(), StatusCode::kNotFound);
  EXPECT_THAT(gone.message(), HasSubstr("generation 2 lives"));
  EXPECT_EQ(Ask(ref.Renewed(event.address.generation), "x").get()->data, "1");
}

TEST(Place, ASpentBudgetEscalatesAndIsTheEnd) {
  Process process(1);
  ActorRef<Count> ref = process.Spawn();
  std::promise<Event> restarted, ended;
  ref.Watch([&](const Event& event) {
    (event.kind == EventKind::kRestarted ? restarted : ended).set_value(event);
  });
  (void)ref.Tell(Count{"fail"});
  ref = ref.Renewed(restarted.get_future().get().address.generation);
  (void)ref.Tell(Count{"fail"});
  EXPECT_EQ(ended.get_future().get().kind, EventKind::kGaveUp);
  EXPECT_EQ(process.escalated.get_future().get().message(), "as it was told");
  EXPECT_EQ(CodeOf(Ask(ref, "x")), StatusCode::kAborted);
}

TEST(Place, AStoppedActorAnswersWhatWaitsAndTellsItsWatchers) {
  Gate gate;
  Process process(1);
  const ActorRef<Count> ref = process.Spawn(&gate);
  (void)ref.Tell(Count{"wait"});
  auto waiting = Ask(ref, "x");
  std::promise<Event> ended;
  ref.Watch([&](const Event& event) { ended.set_value(event); });
  ref.Stop();
  gate.open.set_value();
  EXPECT_EQ(CodeOf(std::move(waiting)), StatusCode::kCancelled);
  EXPECT_EQ(ended.get_future().get().kind, EventKind::kStopped);
  EXPECT_EQ(CodeOf(Ask(ref, "x")), StatusCode::kCancelled);
}

// Two places in one process; a frame arrives within Send, as bytes.
struct DirectTransport final : Transport {
  std::map<PlaceId, Place*> places;
  PlaceId from{0};
  bool holding = false;
  std::vector<std::pair<PlaceId, Frame>> held;

  void Release() {
    holding = false;
    for (auto& [to, frame] : std::exchange(held, {})) Send(to, std::move(frame));
  }
  bool Send(PlaceId to, Frame frame) override {
    const auto it = places.find(to);
    if (it == places.end()) return false;
    if (holding) {
      held.emplace_back(to, std::move(frame));
      return true;
    }
    it->second->OnFrame(from, DecodeFrame(EncodeFrame(frame)).value());
    return true;
  }
};

class TwoPlaces : public ::testing::Test {
 protected:
  TwoPlaces() {
    there_way.from = PlaceId(2);
    here_way.from = PlaceId(1);
    EXPECT_TRUE(registry
                    .Add<Count>(
                        "counter",
                        [](std::string_view args) -> Result<std::unique_ptr<Actor<Count>>> {
                          if (args != "good") return Fail(InvalidArgument("bad arguments"));
                          return std::unique_ptr<Actor<Count>>(std::make_unique<Counter>(nullptr));
                        },
                        CountCodec())
                    .ok());
    here_way.places[PlaceId(2)] = &*there.place;
    there_way.places[PlaceId(1)] = &*here.place;
  }
  ~TwoPlaces() override {
    here.actor_thread.Stop();
    there.actor_thread.Stop();
  }
  Result<Address> Spawn(const std::string& type, const std::string& args) {
    std::promise<Result<Address>> made;
    here.place->SpawnAt(Address{PlaceId(2), ActorId(40), ActorGeneration(3)}, type, args, 60'000,
                        [&](Result<Address> address) { made.set_value(std::move(address)); });
    return made.get_future().get();
  }

  DirectTransport here_way, there_way;
  Registry registry;
  Process here{1, &here_way, nullptr};
  Process there{2, &there_way, &registry};
};

TEST_F(TwoPlaces, AnActorOfAnotherPlaceIsSpawnedAskedWatchedAndStoppedByTheSameCalls) {
  const Result<Address> address = Spawn("counter", "good");
  ASSERT_TRUE(address.has_value()) << address.error();
  EXPECT_EQ(*address, (Address{PlaceId(2), ActorId(40), ActorGeneration(3)}));
  const ActorRef<Count> ref = here.place->Remote<Count>(*address, SharedCodec());
  ASSERT_TRUE(ref.Tell(Count{"x"}).ok());
  EXPECT_EQ(Ask(ref, "y").get()->data, "2");
  EXPECT_EQ(CodeOf(Ask(ref, "undecodable")), StatusCode::kInvalidArgument);
  std::promise<Event> ended;
  ref.Watch([&](const Event& event) { ended.set_value(event); });
  ref.Stop();
  EXPECT_EQ(ended.get_future().get().kind, EventKind::kStopped);
  EXPECT_EQ(CodeOf(Ask(ref, "z")), StatusCode::kNotFound);
  EXPECT_EQ(here.place->unreplied(PlaceId(2)), 0u);
}

TEST_F(TwoPlaces, ASpawnThatCannotBeSaysWhy) {
  EXPECT_THAT(Spawn("unknown", "good").error().message(),
              HasSubstr("no actor type 'unknown'; this binary has: counter"));
  EXPECT_EQ(Spawn("counter", "bad").error().message(), "bad arguments");
}

TEST_F(TwoPlaces, CreditsBoundWhatHasNotBeenRepliedTo) {
  const ActorRef<Count> ref =
      here.place->Remote<Count>(Spawn("counter", "good").value(), SharedCodec());
  there_way.holding = true;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ref.Tell(Count{"x"}).ok());
  const Status refused = ref.Tell(Count{"x"});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("4 messages to place 2 have not been answered"));
  EXPECT_EQ(CodeOf(Ask(ref, "x")), StatusCode::kResourceExhausted);
  there_way.Release();
  EXPECT_EQ(here.place->unreplied(PlaceId(2)), 0u);
  EXPECT_TRUE(ref.Tell(Count{"x"}).ok());
}

TEST_F(TwoPlaces, TheEndOfAPlaceAnswersWhatWasAskedOfIt) {
  const ActorRef<Count> ref =
      here.place->Remote<Count>(Spawn("counter", "good").value(), SharedCodec());
  auto kept = Ask(ref, "keep");
  std::promise<Event> lost;
  ref.Watch([&](const Event& event) { lost.set_value(event); });
  here.place->OnPlaceLost(PlaceId(2), Unavailable("its process was killed"));
  const Result<Bytes> dead = kept.get();
  ASSERT_FALSE(dead.has_value());
  EXPECT_EQ(dead.error().code(), StatusCode::kAborted);
  EXPECT_THAT(dead.error().message(), HasSubstr("its process was killed"));
  EXPECT_EQ(lost.get_future().get().kind, EventKind::kLost);
  EXPECT_EQ(CodeOf(Ask(ref, "x")), StatusCode::kAborted);
  std::promise<Event> late;
  ref.Watch([&](const Event& event) { late.set_value(event); });
  EXPECT_EQ(late.get_future().get().kind, EventKind::kLost);
}

// Why an actor was escalated that waits for ever, in its first message or where it is made.
std::string WhySilent(bool in_making) {
  Gate gate;
  Executor loop_thread("place"), actor_thread("actors");
  ExecutorScheduler loop(loop_thread), actors(actor_thread);
  std::promise<Status> escalated;
  PlaceParts parts;
  parts.id = PlaceId(1);
  parts.clock = &SystemClock();
  parts.loop = &loop;
  parts.silent_ms = 10;
  parts.escalate = [&](const Address&, const Status& why) { escalated.set_value(why); };
  Place place(std::move(parts));
  SpawnOptions<Count> options;
  options.factory = [&]() -> Result<std::unique_ptr<Actor<Count>>> {
    if (in_making) gate.opened.wait();
    return std::unique_ptr<Actor<Count>>(std::make_unique<Counter>(&gate));
  };
  options.scheduler = &actors;
  const ActorRef<Count> ref = place.Spawn<Count>(std::move(options));
  EXPECT_TRUE(ref.Tell(Count{"wait"}).ok());
  const std::string why(escalated.get_future().get().message());
  gate.open.set_value();
  actor_thread.Stop();
  loop_thread.Stop();
  return why;
}

TEST(Place, AnActorThatIsSilentEscalates) {
  EXPECT_THAT(WhySilent(false), HasSubstr("at one message for"));
  EXPECT_THAT(WhySilent(true), HasSubstr("at one message for"));
}

}  // namespace
}  // namespace meshwright::actor
