// Placement, addressing and ends of host actors, one by one; then random histories of a table among
// workers that lose processes, messages' order between workers, and themselves.
#include "controller/actor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <string>

#include "base/philox.h"
#include "tests/scale.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ActorEventKind;
using proto::ActorRef;
using ::testing::HasSubstr;

constexpr int kRestarts = 3;
constexpr int64_t kPerMs = 60'000;

ActorTableOptions SmallTable() {
  ActorTableOptions options;
  options.credits = 3;
  options.credit_bytes = 1'000;
  options.start_deadline_ms = 1'000;
  options.place_deadline_ms = 4'000;
  options.supervision = {{.child = "*",
                          .event = actor::ChildEvent::kFailed,
                          .verdict = actor::Verdict::kRestart,
                          .backoff_ms = 100,
                          .backoff_max_ms = 1'000,
                          .restarts = kRestarts,
                          .per_ms = kPerMs}};
  return options;
}

// A table and what it said.
struct Desk {
  ActorTable table{SmallTable()};
  ActorWorkers workers{{"w0", {"env", "reward"}}, {"w1", {"env"}}};
  int64_t now_ms = 1'000;
  uint64_t calls = 1;
  std::vector<ActorSend> sent;
  std::map<uint64_t, std::vector<ActorAnswer>> answers;
  std::vector<std::string> lines;

  void Note(const ActorEffects& effects) {
    for (const auto& effect : effects) {
      if (const auto* send = std::get_if<ActorSend>(&effect)) sent.push_back(*send);
      if (const auto* line = std::get_if<ActorLine>(&effect)) lines.push_back(line->line);
      if (const auto* answer = std::get_if<ActorAnswer>(&effect)) {
        answers[answer->call.value()].push_back(*answer);
      }
    }
    const Status status = table.CheckInvariants();
    EXPECT_TRUE(status.ok()) << status;
  }
  uint64_t Spawn(const std::string& type, const std::string& worker = "", int64_t job = 1) {
    Note(table.Spawn({CallId(calls), JobId(job), type, "args", worker}, workers, now_ms));
    return calls++;
  }
  void Say(ActorEventKind kind, const ActorRef& ref, const std::string& why = "") {
    Note(table.OnEvent(
        ref.worker, {JobId(1), ref.id, ref.generation, kind, StatusCode::kInternal, why}, now_ms));
  }
  // Spawned and started.
  ActorRef Start(const std::string& type, const std::string& worker = "") {
    const uint64_t call = Spawn(type, worker);
    const auto& spawn = std::get<proto::SpawnActor>(sent.back().body);
    Say(ActorEventKind::kStarted, {sent.back().worker, spawn.actor, spawn.generation});
    return answers.at(call).at(0).ref;
  }
  uint64_t Ask(const ActorRef& ref, int64_t deadline_ms = 5'000, bool tell = false) {
    Note(table.Ask({CallId(calls), ref, "question", deadline_ms, tell}, now_ms));
    return calls++;
  }
  uint64_t Watch(const ActorRef& ref) {
    Note(table.Watch({CallId(calls), ref}));
    return calls++;
  }
  uint64_t LastAsk() const { return std::get<proto::ActorMessage>(sent.back().body).ask; }
  void Pass(int64_t ms) {
    now_ms += ms;
    Note(table.Tick(workers, now_ms));
  }
  StatusCode CodeOf(uint64_t call) {
    EXPECT_EQ(answers[call].size(), 1u);
    return answers[call].empty() ? StatusCode::kUnknown : answers[call][0].status.code();
  }
};

TEST(ActorTable, ActorsGoWhereTheirTypeIsAndTheFewestAre) {
  Desk desk;
  EXPECT_EQ(desk.Start("env").worker, "w0");
  EXPECT_EQ(desk.Start("env").worker, "w1");
  EXPECT_EQ(desk.Start("reward").worker, "w0");
  EXPECT_EQ(desk.Start("env").worker, "w1");
  EXPECT_EQ(desk.Start("env", "w0").worker, "w0");
}

TEST(ActorTable, ASpawnThatCannotBeSaysWhatIsMissing) {
  Desk desk;
  uint64_t call = desk.Spawn("oracle");
  EXPECT_EQ(desk.CodeOf(call), StatusCode::kNotFound);
  EXPECT_THAT(desk.answers[call][0].status.message(), HasSubstr("there are: env, reward"));
  call = desk.Spawn("reward", "w1");
  EXPECT_THAT(desk.answers[call][0].status.message(), HasSubstr("no ready worker named 'w1'"));
  EXPECT_EQ(desk.CodeOf(desk.Spawn("env", "w9")), StatusCode::kUnavailable);
  call = desk.Spawn("env");
  desk.Say(ActorEventKind::kFailed, {"w0", 1, 1}, "bad arguments");
  EXPECT_EQ(desk.answers[call][0].status.message(), "bad arguments");
  call = desk.Spawn("env");
  desk.Pass(1'000);
  EXPECT_THAT(desk.answers[call][0].status.message(), HasSubstr("did not start within 1000 ms"));
  EXPECT_TRUE(std::holds_alternative<proto::StopActor>(desk.sent.back().body));
  EXPECT_EQ(desk.table.actors(), 0u);
  // It has begun after all: it is told to stop again.
  desk.sent.clear();
  desk.Say(ActorEventKind::kStarted, {"w0", 2, 1});
  ASSERT_EQ(desk.sent.size(), 1u);
  EXPECT_EQ(std::get<proto::StopActor>(desk.sent[0].body).actor, 2u);
}

TEST(ActorTable, AQuestionIsAnsweredByItsReplyOnceAndTheReplyIsACredit) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  const uint64_t call = desk.Ask(ref);
  const uint64_t ask = desk.LastAsk();
  desk.Ask(ref);
  desk.Ask(ref, 5'000, true);
  EXPECT_EQ(desk.CodeOf(desk.Ask(ref)), StatusCode::kResourceExhausted);
  desk.Note(desk.table.OnReply(ref.worker, {ask, {}, {}, "answer"}));
  EXPECT_EQ(desk.CodeOf(call), StatusCode::kOk);
  EXPECT_EQ(desk.answers[call][0].payload, "answer");
  desk.Note(desk.table.OnReply(ref.worker, {ask, {}, {}, "again"}));
  desk.Note(desk.table.OnReply("w1", {ask + 1, {}, {}, "of a stranger"}));
  EXPECT_EQ(desk.answers[call].size(), 1u);
  EXPECT_EQ(desk.table.stale(), 2);
  EXPECT_EQ(desk.table.unreplied(ref.worker), 2u);
}

// What actors are asked never fills the stream on which their worker is spoken to.
TEST(ActorTable, MessagesToAWorkerHaveABoundInBytesToo) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  desk.Note(desk.table.Ask({CallId(1001), ref, std::string(900, 'x'), 5'000, false}, desk.now_ms));
  const uint64_t first = desk.LastAsk();
  desk.Note(desk.table.Ask({CallId(1002), ref, std::string(101, 'x'), 5'000, false}, desk.now_ms));
  ASSERT_EQ(desk.CodeOf(1002), StatusCode::kResourceExhausted);
  EXPECT_THAT(desk.answers[1002][0].status.message(), HasSubstr("1 messages of 900 bytes"));
  desk.Note(desk.table.Ask({CallId(1003), ref, std::string(100, 'x'), 5'000, false}, desk.now_ms));
  EXPECT_TRUE(desk.answers[1003].empty()) << "it is sent";
  desk.Note(desk.table.OnReply(ref.worker, {first, {}, {}, "answer"}));
  desk.Note(desk.table.Ask({CallId(1004), ref, std::string(900, 'x'), 5'000, false}, desk.now_ms));
  EXPECT_TRUE(desk.answers[1004].empty()) << "a reply gives its bytes back";
  EXPECT_EQ(desk.table.CheckInvariants().message(), "");
}

TEST(ActorTable, WhoTellsHearsWhetherTheMailboxHasIt) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  const uint64_t taken = desk.Ask(ref, 5'000, true);
  EXPECT_TRUE(std::get<proto::ActorMessage>(desk.sent.back().body).tell);
  EXPECT_TRUE(desk.answers[taken].empty());
  desk.Note(desk.table.OnReply(ref.worker, {desk.LastAsk(), {}, {}, ""}));
  EXPECT_EQ(desk.CodeOf(taken), StatusCode::kOk);
  const uint64_t full = desk.Ask(ref, 5'000, true);
  desk.Note(desk.table.OnReply(
      ref.worker, {desk.LastAsk(), StatusCode::kResourceExhausted, "its mailbox is full", ""}));
  EXPECT_EQ(desk.CodeOf(full), StatusCode::kResourceExhausted);
  const uint64_t lost = desk.Ask(ref, 5'000, true);
  desk.Say(ActorEventKind::kFailed, ref, "it fell");
  EXPECT_EQ(desk.CodeOf(lost), StatusCode::kAborted);
}

TEST(ActorTable, ALateQuestionEndsButItsCreditWaitsForTheReply) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  const uint64_t call = desk.Ask(ref, 300);
  desk.Pass(299);
  EXPECT_TRUE(desk.answers[call].empty());
  desk.Pass(1);
  EXPECT_EQ(desk.CodeOf(call), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(desk.table.unreplied(ref.worker), 1u);
  desk.Note(desk.table.OnReply(ref.worker, {desk.LastAsk(), {}, {}, "late"}));
  EXPECT_EQ(desk.table.unreplied(ref.worker), 0u);
  EXPECT_EQ(desk.CodeOf(call), StatusCode::kDeadlineExceeded);
}

TEST(ActorTable, ADeadActorIsMadeAgainAndTheOldLifeIsGone) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  const uint64_t pending = desk.Ask(ref);
  const uint64_t watch = desk.Watch(ref);
  desk.Say(ActorEventKind::kFailed, ref, "segmentation fault");
  EXPECT_EQ(desk.CodeOf(pending), StatusCode::kAborted);
  EXPECT_THAT(desk.answers[pending][0].status.message(), HasSubstr("segmentation fault"));
  EXPECT_EQ(desk.CodeOf(desk.Ask(ref)), StatusCode::kAborted);  // waits for its backoff
  desk.workers.erase("w0");
  desk.Pass(100);
  const auto& again = std::get<proto::SpawnActor>(desk.sent.back().body);
  EXPECT_EQ(again.generation, 2u);
  EXPECT_EQ(desk.sent.back().worker, "w1");
  EXPECT_EQ(desk.CodeOf(desk.Ask(ref)), StatusCode::kNotFound);
  desk.Say(ActorEventKind::kStarted, {"w1", ref.id, 2});
  ASSERT_EQ(desk.answers[watch].size(), 1u);
  EXPECT_EQ(desk.answers[watch][0].news, ActorNews::kRestarted);
  EXPECT_FALSE(desk.answers[watch][0].last);
  EXPECT_THAT(desk.answers[watch][0].status.message(), HasSubstr("segmentation fault"));
  const ActorRef renewed = desk.answers[watch][0].ref;
  EXPECT_EQ(renewed, (ActorRef{"w1", ref.id, 2}));
  (void)desk.Ask(renewed);
  EXPECT_EQ(std::get<proto::ActorMessage>(desk.sent.back().body).generation, 2u);
  EXPECT_THAT(desk.lines, ::testing::Contains(HasSubstr("again in 100 ms")));
}

TEST(ActorTable, ASpentBudgetIsTheEndAndTheJobIsTold) {
  Desk desk;
  ActorRef ref = desk.Start("env");
  const uint64_t watch = desk.Watch(ref);
  for (int i = 0; i < kRestarts; ++i) {
    desk.Say(ActorEventKind::kFailed, ref, "it fell");
    desk.Pass(1'000);
    const auto& again = std::get<proto::SpawnActor>(desk.sent.back().body);
    ref = {desk.sent.back().worker, again.actor, again.generation};
    desk.Say(ActorEventKind::kStarted, ref);
  }
  desk.Say(ActorEventKind::kFailed, ref, "it fell");
  EXPECT_EQ(desk.answers[watch].back().news, ActorNews::kGaveUp);
  EXPECT_TRUE(desk.answers[watch].back().last);
  EXPECT_EQ(desk.answers[watch].size(), static_cast<size_t>(kRestarts + 1));
  EXPECT_THAT(desk.lines.back(), HasSubstr("it fell; given up"));
  EXPECT_EQ(desk.CodeOf(desk.Ask(ref)), StatusCode::kNotFound);
}

TEST(ActorTable, AnActorThatFindsNoWorkerWaitsAndIsGivenUp) {
  Desk desk;
  const ActorRef ref = desk.Start("env", "w1");
  const uint64_t watch = desk.Watch(ref);
  desk.workers.erase("w1");
  desk.Note(desk.table.WorkerGone("w1", "its session ended", desk.now_ms));
  desk.Pass(3'900);
  EXPECT_TRUE(desk.answers[watch].empty());
  desk.Pass(100);
  EXPECT_EQ(desk.answers[watch].at(0).news, ActorNews::kGaveUp);
  EXPECT_THAT(desk.answers[watch][0].status.message(), HasSubstr("worker 'w1', which is not"));
}

TEST(ActorTable, TheEndOfAJobEndsItsActorsAndTheirProcesses) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  (void)desk.Start("env");
  const uint64_t other = desk.Spawn("env", "w0", 2);
  const uint64_t pending = desk.Ask(ref);
  desk.sent.clear();
  desk.Note(desk.table.JobEnded(JobId(1)));
  EXPECT_EQ(desk.CodeOf(pending), StatusCode::kCancelled);
  std::set<std::string> told;
  for (const ActorSend& send : desk.sent) {
    EXPECT_EQ(std::get<proto::StopActor>(send.body), (proto::StopActor{JobId(1), 0, 0}));
    told.insert(send.worker);
  }
  EXPECT_EQ(told, (std::set<std::string>{"w0", "w1"}));
  EXPECT_EQ(desk.table.actors(), 1u);
  EXPECT_TRUE(desk.answers[other].empty());
}

TEST(ActorTable, AStoppedActorAnswersEverybody) {
  Desk desk;
  const ActorRef ref = desk.Start("env");
  const uint64_t pending = desk.Ask(ref), watch = desk.Watch(ref);
  desk.Note(desk.table.Stop({CallId(900), ref}));
  EXPECT_EQ(desk.CodeOf(900), StatusCode::kOk);
  EXPECT_EQ(desk.CodeOf(pending), StatusCode::kCancelled);
  EXPECT_EQ(desk.answers[watch].at(0).news, ActorNews::kStopped);
  EXPECT_EQ(std::get<proto::StopActor>(desk.sent.back().body).actor, ref.id);
  desk.Note(desk.table.Stop({CallId(901), ref}));
  EXPECT_EQ(desk.CodeOf(901), StatusCode::kNotFound);
}

// ---- Random histories ---------------------------------------------------------------------------

// A worker as the table sees one: it keeps what it was told, in order, and answers when drawn.
struct SimHost {
  std::set<std::pair<uint64_t, uint64_t>> alive;  // (actor, generation)
  std::deque<proto::DownBody> down;
  std::deque<proto::UpBody> up;
};

class TableSimulation {
 public:
  explicit TableSimulation(uint64_t seed) : seed_(seed) {
    for (const char* name : {"w0", "w1", "w2"}) hosts_[name];
  }

  void Act() {
    switch (Draw(12)) {
      case 0:
        ++expected_[calls_];
        Note(table_.Spawn({CallId(calls_++), JobId(1 + Draw(3)), Draw(5) == 0 ? "none" : "env", "",
                           Draw(3) == 0 ? Name(Draw(3)) : ""},
                          Workers(), now_ms_));
        break;
      case 1:
        if (refs_.empty()) break;
        ++expected_[calls_];
        watches_.insert(calls_);
        Note(table_.Watch({CallId(calls_++), AnyRef()}));
        break;
      case 2:
        if (refs_.empty() || Draw(6) != 0) break;
        ++expected_[calls_];
        Note(table_.Stop({CallId(calls_++), AnyRef()}));
        break;
      case 3:
        if (Draw(15) == 0) Note(table_.JobEnded(JobId(1 + Draw(3))));
        break;
      case 4:
        if (Draw(10) == 0) KillWorker(Name(Draw(3)));
        break;
      case 5:
        if (Draw(3) == 0) KillActor();
        break;
      case 6:
        hosts_.try_emplace(Name(Draw(3)));
        break;
      case 7:
        Pass(1 + Draw(400));
        break;
      default:
        if (refs_.empty()) break;
        ++expected_[calls_];
        AskOne(AnyRef());
    }
  }
  void Deliver(int64_t count) {
    for (; count > 0; --count) {
      if (hosts_.empty()) return;
      auto it = hosts_.begin();
      std::advance(it, Draw(static_cast<int64_t>(hosts_.size())));
      Draw(2) == 0 ? Down(it->first, it->second) : Up(it->first, it->second);
    }
  }
  void Pass(int64_t ms) {
    now_ms_ += ms;
    Note(table_.Tick(Workers(), now_ms_));
  }
  void CheckTheEnd() {
    for (int round = 0; round < 200; ++round) {
      Deliver(100);
      Pass(100);
    }
    EXPECT_EQ(table_.asks(), 0u);
    for (const auto& [name, host] : hosts_) EXPECT_EQ(table_.unreplied(name), 0u) << name;
    Note(table_.Shutdown());
    for (const auto& [call, count] : expected_) EXPECT_EQ(answers_[call], count) << "call " << call;
  }
  int64_t answered() const { return answered_; }
  int64_t restarts() const { return restarts_; }

 private:
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(PhiloxBits(seed_, 9, 0, draws_++) % static_cast<uint64_t>(below));
  }
  static std::string Name(int64_t index) { return "w" + std::to_string(index); }
  ActorWorkers Workers() const {
    ActorWorkers ready;
    for (const auto& [name, host] : hosts_) ready[name] = {"env"};
    return ready;
  }
  const ActorRef& AnyRef() {
    return refs_[static_cast<size_t>(Draw(static_cast<int64_t>(refs_.size())))];
  }

  // The message says which life it is meant for.
  void AskOne(const ActorRef& ref) {
    const std::string meant = std::to_string(ref.generation);
    Note(table_.Ask({CallId(calls_++), ref, meant, 1 + Draw(900), Draw(6) == 0}, now_ms_));
  }

  void Note(const ActorEffects& effects) {
    for (const auto& effect : effects) {
      if (const auto* send = std::get_if<ActorSend>(&effect)) {
        if (const auto host = hosts_.find(send->worker); host != hosts_.end()) {
          host->second.down.push_back(send->body);
        }
        if (const auto* spawn = std::get_if<proto::SpawnActor>(&send->body)) NoteSpawn(*spawn);
      }
      if (const auto* answer = std::get_if<ActorAnswer>(&effect)) NoteAnswer(*answer);
    }
    const Status status = table_.CheckInvariants();
    EXPECT_TRUE(status.ok()) << status;
    for (const auto& [name, host] : hosts_) EXPECT_LE(table_.unreplied(name), 3u);
  }
  void NoteSpawn(const proto::SpawnActor& spawn) {
    EXPECT_EQ(spawn.generation, ++lives_[spawn.actor]) << "a generation was used twice";
    if (spawn.generation == 1) return;
    ++restarts_;
    std::deque<int64_t>& times = times_[spawn.actor];
    times.push_back(now_ms_);
    while (times.front() <= now_ms_ - kPerMs) times.pop_front();
    EXPECT_LE(times.size(), static_cast<size_t>(kRestarts)) << "beyond the budget";
  }
  void NoteAnswer(const ActorAnswer& answer) {
    const uint64_t call = answer.call.value();
    EXPECT_EQ(answers_[call], 0) << "call " << call << " was answered after its last answer";
    if (answer.last) ++answers_[call];
    if (answer.last && answer.status.ok() && !answer.payload.empty()) ++answered_;
    const bool begun = answer.status.ok() || answer.news == ActorNews::kRestarted;
    if (begun && answer.ref.id != 0) refs_.push_back(answer.ref);
    EXPECT_TRUE(answer.last || watches_.contains(call));
  }

  void KillWorker(const std::string& name) {
    if (hosts_.erase(name) != 0) Note(table_.WorkerGone(name, "it was killed", now_ms_));
  }
  void KillActor() {
    for (auto& [name, host] : hosts_) {
      if (host.alive.empty()) continue;
      const auto [actor, generation] = *host.alive.begin();
      host.alive.erase(host.alive.begin());
      host.up.push_back(proto::ActorEvent{JobId(1), actor, generation, ActorEventKind::kFailed,
                                          StatusCode::kAborted, "killed"});
      return;
    }
  }
  void Down(const std::string&, SimHost& host) {
    if (host.down.empty()) return;
    const proto::DownBody body = std::move(host.down.front());
    host.down.pop_front();
    if (const auto* spawn = std::get_if<proto::SpawnActor>(&body)) {
      if (Draw(8) == 0) return;  // it hangs: the start's deadline sees to it
      const bool good = Draw(5) != 0;
      if (good) host.alive.emplace(spawn->actor, spawn->generation);
      host.up.push_back(proto::ActorEvent{spawn->job, spawn->actor, spawn->generation,
                                          good ? ActorEventKind::kStarted : ActorEventKind::kFailed,
                                          StatusCode::kUnavailable, "not now"});
    } else if (const auto* message = std::get_if<proto::ActorMessage>(&body)) {
      const bool alive = host.alive.contains({message->actor, message->generation});
      EXPECT_EQ(message->payload, std::to_string(message->generation)) << "of another life";
      EXPECT_TRUE(lives_[message->actor] >= message->generation);
      host.up.push_back(proto::ActorReply{
          message->ask, alive ? StatusCode::kOk : StatusCode::kNotFound, "gone", "answer"});
    } else if (const auto* stop = std::get_if<proto::StopActor>(&body)) {
      stop->actor == 0 ? host.alive.clear()
                       : (void)host.alive.erase({stop->actor, stop->generation});
    }
  }
  void Up(const std::string& name, SimHost& host) {
    if (host.up.empty()) return;
    const proto::UpBody body = std::move(host.up.front());
    host.up.pop_front();
    if (const auto* reply = std::get_if<proto::ActorReply>(&body)) {
      Note(table_.OnReply(name, *reply));
    } else if (const auto* event = std::get_if<proto::ActorEvent>(&body)) {
      Note(table_.OnEvent(name, *event, now_ms_));
    }
  }

  const uint64_t seed_;
  uint64_t draws_ = 0;
  ActorTable table_{SmallTable()};
  int64_t now_ms_ = 1'000;
  uint64_t calls_ = 1;
  std::map<std::string, SimHost> hosts_;
  std::vector<ActorRef> refs_;
  std::set<uint64_t> watches_;
  std::map<uint64_t, int> expected_, answers_;  // last answers, by call
  std::map<uint64_t, uint64_t> lives_;
  std::map<uint64_t, std::deque<int64_t>> times_;
  int64_t answered_ = 0, restarts_ = 0;
};

TEST(ActorTableSimulation, EveryCallIsAnsweredOnceInRandomHistories) {
  constexpr uint64_t kHistories = kSanitizedBuild ? 60 : 400;
  int64_t answered = 0, restarts = 0;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TableSimulation simulation(seed);
    for (int round = 0; round < 300; ++round) {
      simulation.Act();
      simulation.Deliver(round % 5);
    }
    simulation.CheckTheEnd();
    answered += simulation.answered();
    restarts += simulation.restarts();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(answered, static_cast<int64_t>(kHistories) * 10);
  EXPECT_GT(restarts, static_cast<int64_t>(kHistories));
}

// ---- In the core --------------------------------------------------------------------------------

TEST(CoreActors, AnActorBelongsToAJobThatLivesAndEndsWithIt) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_plans = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 5));
  cluster.Feed(SpawnActorCall{CallId(9001), JobId(job + 1), "env", "", ""});
  EXPECT_EQ(cluster.actor_answers.at(0).status.code(), StatusCode::kNotFound);
  cluster.Feed(SpawnActorCall{CallId(9002), JobId(job), "env", "", ""});
  while (cluster.DeliverOne()) {
  }
  ASSERT_EQ(cluster.actor_answers.size(), 2u);
  ASSERT_TRUE(cluster.actor_answers[1].status.ok()) << cluster.actor_answers[1].status;
  const ActorRef ref = cluster.actor_answers[1].ref;
  // Ids are those of a term.
  EXPECT_EQ(ref.id >> 32, cluster.core().options().term.value());
  cluster.Feed(AskActorCall{CallId(9003), ref, "x", 1'000, false});
  while (cluster.DeliverOne()) {
  }
  EXPECT_EQ(cluster.actor_answers.at(2).payload, "x#1");
  cluster.hold_actors = true;
  cluster.Feed(AskActorCall{CallId(9004), ref, "x", 60'000, false});
  ASSERT_TRUE(cluster.Cancel(job).ok());
  EXPECT_EQ(cluster.actor_answers.at(3).status.code(), StatusCode::kCancelled);
  cluster.Settle();
  EXPECT_THAT(cluster.stopped_actors, ::testing::ElementsAre(proto::StopActor{JobId(job), 0, 0}));
  cluster.Feed(SpawnActorCall{CallId(9005), JobId(job), "env", "", ""});
  EXPECT_EQ(cluster.actor_answers.at(4).status.code(), StatusCode::kFailedPrecondition);
}

TEST(CoreActors, ALostWorkersActorsMoveToAnotherOne) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  cluster.hold_plans = true;
  const int64_t job = cluster.Submit(SimCluster::MakeJob(1, 1, 1, 5));
  cluster.Feed(SpawnActorCall{CallId(9001), JobId(job), "env", "", ""});
  while (cluster.DeliverOne()) {
  }
  const ActorRef ref = cluster.actor_answers.at(0).ref;
  cluster.hold_actors = true;
  cluster.Feed(AskActorCall{CallId(9002), ref, "x", 60'000, false});
  cluster.Feed(WatchActorCall{CallId(9003), ref});
  cluster.Kill(ref.worker);
  cluster.SettleFor(1'000);
  ASSERT_EQ(cluster.actor_answers.size(), 3u);
  EXPECT_EQ(cluster.actor_answers[1].status.code(), StatusCode::kAborted);
  EXPECT_EQ(cluster.actor_answers[2].news, ActorNews::kRestarted);
  EXPECT_EQ(cluster.actor_answers[2].ref.generation, 2u);
  EXPECT_NE(cluster.actor_answers[2].ref.worker, ref.worker);
}

}  // namespace
}  // namespace meshwright::controller
