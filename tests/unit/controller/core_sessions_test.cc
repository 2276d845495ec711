// Sessions whose connections break: every call is done once and answered rightly, whatever is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "client/ask_table.h"
#include "ir/builder.h"
#include "tests/scale.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A program "echo" with an input x: f64[1] on two devices.
ir::JobRequest EchoJob(int64_t grace_s) {
  ir::Builder builder("echo");
  const ValueId x = builder.AddOne(ir::Op::kFeed, {}, {{"source", "x"}}, {{ir::DType::kF64, {1}}});
  builder.SetOutput("y", builder.AddOne(ir::Op::kScale, {x}, {{"factor", 1.0}}));
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 0);
  job.programs = {{"echo", builder.Finish().value(), {{"x", ir::InputFrom::kClient}}, false}};
  job.driver = {ir::DriverKind::kClient, "", 0, grace_s};
  return job;
}

proto::CallProgram CallEcho(double value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return {"echo", {{"x", {ir::DType::kF64, {1}}, bytes}}, proto::Fetch::kAll, std::nullopt};
}

// The client's side of a session, on streams that lose what is under way when they break.
class Caller {
 public:
  Caller(SimCluster& cluster, int64_t job) : cluster_(cluster), job_(job) {
    cluster.on_tell = [this](const TellClient& tell) {
      if (stream_ && tell.client.value() == *stream_) down_.push_back(tell.news);
    };
    cluster.on_close = [this](const CloseClient& close) {
      if (stream_ && close.client.value() == *stream_) end_ = close.reason;
    };
    Connect();
  }

  bool connected() const { return stream_.has_value(); }
  bool ended() const { return end_.has_value() && down_.empty(); }
  const Status& end() const { return *end_; }

  void Call() {
    if (table_.unanswered() >= static_cast<size_t>(DeskLimits().credits) || ended()) return;
    const double value = ++calls_;
    ++open_;
    const uint64_t id = table_.Add(CallEcho(value), [this, value](Result<proto::AskDone> done) {
      --open_;
      if (!done.has_value()) return failures_.push_back(done.error());
      EXPECT_EQ(done->values.at("echo"), value) << "the answer of another call";
      answered_.push_back(value);
    });
    if (live_) up_.push_back(table_.MessageOf(id));
  }

  // The stream breaks: a part of what is under way arrives first. The controller hears of it when
  // TellGone comes, which may be after the client has come back.
  void Break() {
    if (!stream_) return;
    for (int64_t n = cluster_.Draw(4); n > 0; --n) CarryUp();
    gone_.push_back(*stream_);
    stream_.reset();
    live_ = false;
    up_.clear();
    down_.clear();
  }

  void TellGone() {
    if (gone_.empty()) return;
    const uint64_t client = gone_.front();
    gone_.pop_front();
    cluster_.EndClient(client, ClientEnd::kLost);
  }

  void Connect() {
    if (stream_ || end_) return;
    // News of the attachment come while it runs.
    stream_ = ++streams_;
    const uint64_t client = cluster_.OpenClient(job_, "mine", known_);
    EXPECT_EQ(client, *stream_);
  }

  bool CarryUp() {
    if (up_.empty() || !stream_) return false;
    proto::ClientUp message = std::move(up_.front());
    up_.pop_front();
    if (auto* ask = std::get_if<proto::SessionAsk>(&message)) {
      cluster_.Feed(AskOfClient{ClientId(*stream_), ask->id, ask->ask, ask->acked});
    } else {
      cluster_.Feed(AckOfClient{ClientId(*stream_), std::get<proto::SessionAck>(message).ids});
    }
    return true;
  }

  bool CarryDown() {
    if (down_.empty()) return false;
    const proto::ClientDown news = std::move(down_.front());
    down_.pop_front();
    if (const auto* opened = std::get_if<proto::SessionOpened>(&news)) {
      known_ = live_ = true;
      for (const uint64_t id : table_.ToRepeat(opened->held)) up_.push_back(table_.MessageOf(id));
    } else if (const auto* done = std::get_if<proto::AskDone>(&news)) {
      Settle(done->id, *done);
    } else {
      const auto& failed = std::get<proto::AskFailed>(news);
      Settle(failed.id, tl::unexpected(failed.error.ToStatus()));
    }
    return true;
  }

  // Nothing is lost any more: until everything is answered, or the session has ended.
  void Finish() {
    Connect();
    for (bool moves = true; moves;) {
      moves = CarryUp();
      moves = CarryDown() || moves;
      moves = cluster_.DeliverOne() || moves;
    }
    if (!end_) return;
    for (const auto& done : table_.TakeAll()) done(Fail(*end_));
  }

  int calls() const { return static_cast<int>(calls_); }
  int open() const { return open_; }
  const std::vector<double>& answered() const { return answered_; }
  const std::vector<Status>& failures() const { return failures_; }

 private:
  void Settle(uint64_t id, Result<proto::AskDone> result) {
    // Twice: a stream broke before the first one was acknowledged.
    if (const auto done = table_.Answered(id, 0)) done(std::move(result));
    if (auto acks = table_.DueAcks(); !acks.empty()) up_.push_back(proto::SessionAck{acks});
  }

  SimCluster& cluster_;
  const int64_t job_;
  client::AskTable table_;
  uint64_t streams_ = 0;
  std::optional<uint64_t> stream_;
  bool live_ = false;
  bool known_ = false;
  std::optional<Status> end_;
  std::deque<uint64_t> gone_;  // streams that broke, of which the controller has not heard
  std::deque<proto::ClientUp> up_;
  std::deque<proto::ClientDown> down_;
  double calls_ = 0;
  int open_ = 0;
  std::vector<double> answered_;
  std::vector<Status> failures_;
};

std::vector<double> Numbers(int count) {
  std::vector<double> numbers;
  for (int i = 1; i <= count; ++i) numbers.push_back(i);
  return numbers;
}

void RandomEvent(SimCluster& cluster, Caller& caller) {
  switch (cluster.Draw(12)) {
    case 0:
      return caller.Break();
    case 1:
      return caller.TellGone();
    case 2:
    case 3:
      return caller.Connect();
    case 4:
    case 5:
    case 6:
      return caller.Call();
    case 7:
    case 8:
      return (void)caller.CarryUp();
    case 9:
      return (void)caller.CarryDown();
    default:
      return (void)cluster.DeliverOne();
  }
}

TEST(CoreSessions, BrokenStreamsNeitherLoseNorRepeatACall) {
  constexpr uint64_t kHistories = kSanitizedBuild ? 40 : 300;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimCluster cluster(SimCluster::DefaultOptions(), seed);
    cluster.AddWorkers(2);
    Caller caller(cluster, cluster.Submit(EchoJob(3600)));
    for (int event = 0; event < 400; ++event) RandomEvent(cluster, caller);
    caller.Finish();
    EXPECT_FALSE(caller.ended());
    EXPECT_EQ(caller.open(), 0);
    EXPECT_THAT(caller.failures(), SizeIs(0));
    EXPECT_THAT(caller.answered(), SizeIs(static_cast<size_t>(caller.calls())));
    for (const char* worker : {"w0", "w1"}) {
      EXPECT_EQ(cluster.worker(worker).executed, Numbers(caller.calls())) << worker;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

// Workers die as well, the grace time passes, or the controller is started anew: every call ends
// once, rightly or with an error that says why, and none is done twice.
TEST(CoreSessions, EveryCallEndsOnceWhateverDies) {
  constexpr uint64_t kHistories = kSanitizedBuild ? 40 : 300;
  int ended = 0;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimCluster cluster(SimCluster::DefaultOptions(), seed);
    cluster.AddWorkers(2);
    Caller caller(cluster, cluster.Submit(EchoJob(1 + cluster.Draw(3))));
    const int64_t fault_at = cluster.Draw(300);
    for (int event = 0; event < 300; ++event) {
      RandomEvent(cluster, caller);
      if (cluster.Draw(10) == 0) cluster.Advance(100 * (1 + cluster.Draw(5)));
      if (event != fault_at) continue;
      if (cluster.Draw(2) == 0) {
        cluster.Kill("w" + std::to_string(cluster.Draw(2)));
      } else {
        caller.Break();
        cluster.RestartController();
      }
    }
    // A job that had not begun runs now.
    for (const char* worker : {"w0", "w1"}) cluster.Reconnect(worker);
    cluster.SettleFor(2000);
    caller.Finish();
    cluster.SettleFor(5000);
    caller.Finish();
    EXPECT_EQ(caller.open(), 0);
    EXPECT_EQ(caller.answered().size() + caller.failures().size(),
              static_cast<size_t>(caller.calls()));
    ended += caller.ended() ? 1 : 0;
    for (const Status& why : caller.failures()) EXPECT_FALSE(why.message().empty());
    for (const char* worker : {"w0", "w1"}) {
      const std::vector<double>& executed = cluster.worker(worker).executed;
      EXPECT_EQ(std::adjacent_find(executed.begin(), executed.end(), std::greater_equal<>()),
                executed.end())
          << worker << " did a call twice, or in another order";
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(ended, static_cast<int>(kHistories / 3)) << "hardly any fault met the session";
}

TEST(CoreSessions, AnAnswerThatWasMissedIsToldToWhoComesBack) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  Caller caller(cluster, cluster.Submit(EchoJob(60)));
  while (caller.CarryDown() || cluster.DeliverOne()) {
  }
  caller.Call();
  caller.CarryUp();
  caller.Break();
  caller.TellGone();
  cluster.Settle();
  EXPECT_EQ(caller.open(), 1);
  caller.Finish();
  EXPECT_THAT(caller.answered(), ElementsAre(1.0));
  EXPECT_THAT(cluster.worker("w0").executed, ElementsAre(1.0));
}

TEST(CoreSessions, WhoComesBackAfterTheEndHearsWhatItMissedAndTheEnd) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(EchoJob(60));
  Caller caller(cluster, job);
  while (caller.CarryDown() || cluster.DeliverOne()) {
  }
  caller.Call();
  caller.CarryUp();
  cluster.Settle();
  caller.Call();
  cluster.hold_reports = true;
  caller.CarryUp();
  caller.Break();
  caller.TellGone();
  cluster.Settle();
  cluster.Kill("w1");
  cluster.SettleFor(1000);
  ASSERT_EQ(cluster.Info(job).state, JobState::kFailed);
  caller.Finish();
  EXPECT_THAT(caller.answered(), ElementsAre(1.0)) << "it was done before the end";
  ASSERT_THAT(caller.failures(), SizeIs(1));
  EXPECT_THAT(caller.failures()[0].message(), HasSubstr("w1"));
  EXPECT_THAT(caller.end().message(), HasSubstr("has already ended: FAILED (WorkerLost)"));
}

TEST(CoreSessions, WhoComesBackTooLateIsToldSoAndRepeatsNothing) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(EchoJob(3));
  Caller caller(cluster, job);
  while (caller.CarryDown() || cluster.DeliverOne()) {
  }
  const uint64_t other = cluster.OpenClient(job, "other");
  caller.Break();
  caller.TellGone();
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning) << "another client drives it";
  // The numbers of streams are the cluster's.
  EXPECT_TRUE(cluster.closed(cluster.OpenClient(job, "mine", true)).has_value());
  EXPECT_THAT(cluster.closed(other + 1)->message(), HasSubstr("gave this session up"));
}

TEST(CoreSessions, AControllerThatStartsAnewSaysWhatBecameOfTheJob) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  Caller caller(cluster, cluster.Submit(EchoJob(60)));
  while (caller.CarryDown() || cluster.DeliverOne()) {
  }
  caller.Call();
  caller.Break();
  cluster.RestartController();
  caller.Finish();
  ASSERT_THAT(caller.failures(), SizeIs(1));
  EXPECT_THAT(caller.failures()[0].message(), HasSubstr("FAILED (ControllerRestarted)"));
}

// A batch goes only where its rows are read.
TEST(CoreSessions, RowsGoToTheWorkersWhoseDevicesReadThem) {
  ir::Builder builder("echo");
  const ValueId x =
      builder.AddOne(ir::Op::kFeed, {}, {{"source", "x"}}, {{ir::DType::kF64, {4, 1}}});
  builder.SetOutput("y", builder.AddOne(ir::Op::kScale, {x}, {{"factor", 1.0}}));
  ir::JobRequest job = EchoJob(60);
  job.programs[0].graph = builder.Finish().value();
  SimCluster cluster;
  // Program 0 is "echo", 1 "init": by name. Two rows each; nothing is known of the third device.
  cluster.planned_rows = {{{{0, 0}, {0, 2}}}, {{{0, 0}, {2, 2}}}};
  cluster.AddWorkers(2);
  const uint64_t client = cluster.OpenClient(cluster.Submit(job));
  cluster.Settle();
  std::string bytes;
  for (const double value : {1.0, 2.0, 3.0, 4.0}) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  cluster.Ask(client,
              proto::CallProgram{
                  "echo", {{"x", {ir::DType::kF64, {4, 1}}, bytes}}, proto::Fetch::kAll, {}});
  cluster.Settle();
  EXPECT_THAT(cluster.answers(client), SizeIs(1));
  EXPECT_THAT(cluster.worker("w0").executed, ElementsAre(1.0));
  EXPECT_THAT(cluster.worker("w1").executed, ElementsAre(3.0));
  ASSERT_EQ(cluster.worker("w1").last_inputs.size(), 1u);
  EXPECT_EQ(cluster.worker("w1").last_inputs[0], (proto::LaunchInput{0, bytes.substr(16), 2, 4}));
}

// What is kept for clients that do not say that it has come has a bound.
TEST(ClientDesk, ASessionWhoseAnswersFillItsShareWaitsAndOthersGoOn) {
  const ir::JobRequest job = EchoJob(60);
  ClientDesk desk(DeskLimits{.credits = 4, .kept_bytes = 100});
  ASSERT_TRUE(desk.Attach(ClientId(1), "one").has_value());
  ASSERT_TRUE(desk.Attach(ClientId(2), "two").has_value());
  const auto offer = [&](uint64_t client, uint64_t id) {
    return desk.Offer(ClientId(client), id, CallEcho(1), job, {});
  };
  ASSERT_TRUE(offer(1, 1).ok());
  ASSERT_TRUE(offer(1, 2).ok());
  ASSERT_TRUE(offer(2, 1).ok());
  const auto first = desk.Take();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(desk.Answer(first->seat, first->id, proto::AskDone{1, 0, 0, {}, {}}, 100), ClientId(1));
  const auto second = desk.Take();
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second->seat, first->seat) << "the first session has its share";
  EXPECT_FALSE(desk.Take().has_value());
  desk.Acknowledge(ClientId(1), {1});
  EXPECT_TRUE(desk.Take().has_value());
  // Answers that nobody acknowledges count against the credits.
  EXPECT_EQ(desk.Answer(second->seat, 1, proto::AskDone{1, 0, 0, {}, {}}, 1), ClientId(2));
  for (uint64_t id = 2; id <= 4; ++id) ASSERT_TRUE(offer(2, id).ok()) << id;
  EXPECT_THAT(offer(2, 5).message(), HasSubstr("not acknowledged"));
  EXPECT_TRUE(offer(2, 1).ok()) << "known: nothing to do";
}

}  // namespace
}  // namespace meshwright::controller
