// Host actors in a whole cluster, in random histories: clients, workers, the processes of actors
// and the controller die at any moment. Every call is answered exactly once, by the life that it
// was meant for; calls of a controller that died are never answered by the next one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "tests/seeds.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

constexpr int64_t kWorkers = 3;

// A program "double" with an input x that gives out y, driven by clients.
ir::JobRequest ActorDrivenJob(int64_t grace_s) {
  ir::Builder builder("double");
  const ValueId x =
      builder.AddOne(ir::Op::kFeed, {}, {{"source", "x"}}, {{ir::DType::kF32, {2, 3}}});
  builder.SetOutput("y", builder.AddOne(ir::Op::kScale, {x}, {{"factor", 2.0}}));
  ir::JobProgram program;
  program.name = "double";
  program.graph = builder.Finish().value();
  program.inputs = {{"x", ir::InputFrom::kClient}};
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 0);
  job.programs = {program};
  job.driver = {ir::DriverKind::kClient, "", 0, grace_s};
  return job;
}

// What came of a history, for the test to see that it was one.
struct Seen {
  int64_t answered = 0, failed = 0, restarts = 0, lost = 0, watched = 0;
};

class History {
 public:
  explicit History(uint64_t seed) : cluster_(SimCluster::DefaultOptions(), seed) {
    cluster_.AddWorkers(static_cast<int>(kWorkers));
  }

  void Act() {
    const int64_t kind = cluster_.Draw(40);
    if (kind <= 1) jobs_.push_back(cluster_.Submit(ActorDrivenJob(1 + cluster_.Draw(30))));
    if (kind == 2 && !jobs_.empty()) clients_[cluster_.OpenClient(Any(jobs_))];
    if (kind >= 3 && kind <= 6 && !jobs_.empty()) {
      cluster_.Feed(SpawnActorCall{Called(0), JobId(Any(jobs_)), "env", "", ""});
    }
    if (kind >= 7 && kind <= 20 && !refs_.empty()) {
      const proto::ActorRef ref = AnyRef();
      const bool tell = cluster_.Draw(5) == 0;
      const CallId call = Called(ref.generation);
      cluster_.Feed(AskActorCall{call, ref, "x", 100 + cluster_.Draw(3'000), tell});
    }
    if (kind == 21 && !refs_.empty()) cluster_.Feed(StopActorCall{Called(0), AnyRef()});
    if (kind >= 22 && kind <= 24 && !refs_.empty()) Watch();
    if (kind == 25 && !clients_.empty()) EndClient();
    if (kind == 26) cluster_.Kill(AnyWorker());
    if (kind == 27 || kind == 28) cluster_.Reconnect(AnyWorker());
    if (kind >= 29 && kind <= 31) cluster_.KillActors(AnyWorker());
    if (kind == 32 && !jobs_.empty() && cluster_.Draw(4) == 0) {
      (void)cluster_.Cancel(Any(jobs_));
    }
    if (kind == 33 && cluster_.Draw(6) == 0) RestartController();
    if (kind >= 34 && kind <= 36) cluster_.Advance(100 * (1 + cluster_.Draw(10)));
    if (kind == 37) cluster_.hold_actors = cluster_.Draw(4) == 0;
    for (int64_t i = cluster_.Draw(12); i > 0; --i) cluster_.DeliverOne();
    Hear();
  }

  void End() {
    cluster_.hold_actors = false;
    for (int64_t w = 0; w < kWorkers; ++w) cluster_.Reconnect(fmt::format("w{}", w));
    cluster_.SettleFor(20'000);
    Hear();
    for (const int64_t job : jobs_) (void)cluster_.Cancel(job);
    cluster_.SettleFor(5'000);
    Hear();
    for (const auto& [call, of] : calls_) {
      const int wanted = of.lost ? 0 : 1;
      EXPECT_EQ(of.ends, wanted) << "call " << call << (of.watch ? ", a watch" : "");
    }
  }
  const Seen& seen() const { return seen_; }

 private:
  struct Call {
    uint64_t generation = 0;  // that was asked; 0: none in particular
    bool watch = false;
    bool lost = false;  // with its controller, or its client
    int ends = 0;
  };

  template <typename T>
  const T& Any(const std::vector<T>& all) {
    return all[static_cast<size_t>(cluster_.Draw(static_cast<int64_t>(all.size())))];
  }
  // Mostly one of the last that have begun.
  proto::ActorRef AnyRef() {
    const auto all = static_cast<int64_t>(refs_.size());
    const int64_t newest = std::min<int64_t>(all, 4);
    const int64_t at = cluster_.Draw(4) == 0 ? cluster_.Draw(all) : all - 1 - cluster_.Draw(newest);
    return refs_[static_cast<size_t>(at)];
  }
  std::string AnyWorker() { return fmt::format("w{}", cluster_.Draw(kWorkers)); }
  CallId Called(uint64_t generation) {
    calls_[next_call_] = Call{generation};
    return CallId(next_call_++);
  }

  // Some watches are those of clients, and end with them.
  void Watch() {
    const CallId call = Called(0);
    calls_[call.value()].watch = true;
    if (!clients_.empty()) clients_.begin()->second.push_back(call.value());
    cluster_.Feed(WatchActorCall{call, AnyRef()});
  }
  void EndClient() {
    const auto client = clients_.begin();
    cluster_.EndClient(client->first,
                       cluster_.Draw(2) == 0 ? ClientEnd::kEndsJob : ClientEnd::kLost);
    Hear();
    for (const uint64_t call : client->second) {
      if (calls_[call].ends == 0) calls_[call].lost = true;
      cluster_.Feed(UnwatchActor{CallId(call)});
    }
    clients_.erase(client);
  }
  void RestartController() {
    Hear();
    cluster_.RestartController();
    for (auto& [call, of] : calls_) {
      of.lost = of.lost || of.ends == 0;
      seen_.lost += of.lost ? 1 : 0;
    }
    clients_.clear();
  }

  void Hear() {
    for (; heard_ < cluster_.actor_answers.size(); ++heard_) {
      const ActorAnswer& answer = cluster_.actor_answers[heard_];
      Call& call = calls_.at(answer.call.value());
      EXPECT_FALSE(call.lost) << "call " << answer.call.value()
                              << " of one who is gone is answered";
      EXPECT_EQ(call.ends, 0) << "call " << answer.call.value() << " is answered after its end";
      EXPECT_TRUE(answer.last || call.watch);
      if (answer.last) ++call.ends;
      if (answer.news == ActorNews::kRestarted) {
        ++seen_.restarts;
        EXPECT_FALSE(answer.status.ok()) << "a restart without a cause";
      }
      if (call.watch) ++seen_.watched;
      const bool begun = answer.status.ok() || answer.news == ActorNews::kRestarted;
      if (begun && answer.ref.id != 0) refs_.push_back(answer.ref);
      if (!answer.payload.empty() && answer.status.ok()) {
        ++seen_.answered;
        EXPECT_EQ(answer.payload, fmt::format("x#{}", call.generation)) << "another life answered";
      }
      seen_.failed += answer.status.ok() ? 0 : 1;
    }
  }

  SimCluster cluster_;
  std::vector<int64_t> jobs_;
  std::vector<proto::ActorRef> refs_;                  // also of lives that are over
  std::map<uint64_t, std::vector<uint64_t>> clients_;  // their watches
  std::map<uint64_t, Call> calls_;
  uint64_t next_call_ = 1'000'000;  // above those of SimCluster
  size_t heard_ = 0;
  Seen seen_;
};

TEST(CoreActorsSimulation, EveryCallIsAnsweredOnceByItsLifeWhateverDies) {
  const Seeds seeds = SeedsOf(200, 40);
  Seen all;
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    History history(seed);
    for (int event = 0; event < 350; ++event) history.Act();
    history.End();
    all.answered += history.seen().answered;
    all.failed += history.seen().failed;
    all.restarts += history.seen().restarts;
    all.lost += history.seen().lost;
    all.watched += history.seen().watched;
    if (::testing::Test::HasFailure()) return;
  }
  if (seeds.count() < 40) return;
  // They were histories in which things happen.
  const auto some = static_cast<int64_t>(seeds.count());
  EXPECT_GT(all.answered, 10 * some);
  EXPECT_GT(all.failed, 10 * some);
  EXPECT_GT(all.restarts, some / 2);
  EXPECT_GT(all.lost, some / 2);
  EXPECT_GT(all.watched, some / 2);
}

}  // namespace
}  // namespace meshwright::controller
