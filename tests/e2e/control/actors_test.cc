// Host actors end to end: a controller in this process, workers as processes of a binary with
// actors linked in (tests/e2e/actor_worker), and the processes that these start. Whatever is
// killed, every question is answered once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>

#include "base/file.h"
#include "base/subprocess.h"
#include "controller/control_loop.h"
#include "tests/e2e/actor_client/driven_job.h"
#include "tests/e2e/control/local_cluster.h"
#include "worker/actor_host.h"

namespace meshwright::testing {
namespace {

using controller::ActorAnswer;
using controller::ActorNews;
using proto::ActorRef;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 60'000;
const std::string kWorkerBinary = MESHWRIGHT_ACTOR_WORKER;

// Where nobody reaps orphans, a dead one stays as a zombie.
bool Alive(pid_t pid) {
  const auto stat = ReadFile(fmt::format("/proc/{}/stat", pid));
  return stat.has_value() && stat->find(") Z ") == std::string::npos;
}

// Asks again every few milliseconds, for what nobody tells.
template <typename Condition>
bool Eventually(const Condition& condition) {
  std::mutex mutex;
  std::condition_variable never;
  const Deadline deadline = Deadline::After(kPatienceMs);
  while (!deadline.expired()) {
    if (condition()) return true;
    std::unique_lock lock(mutex);
    never.wait_for(lock, std::chrono::milliseconds(10));
  }
  return false;
}

// What a watch has heard.
class News {
 public:
  void Add(const ActorAnswer& answer) {
    const std::lock_guard lock(mutex_);
    heard_.push_back(answer);
    changed_.notify_all();
  }
  // The news number `index`; waits for it.
  ActorAnswer At(size_t index) {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                                         [&] { return heard_.size() > index; });
    EXPECT_TRUE(there) << "no news";
    return there ? heard_[index] : ActorAnswer{};
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return heard_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ActorAnswer> heard_;
};

class Actors : public ::testing::Test {
 protected:
  void SetUp() override {
    LocalClusterOptions options;
    options.workers = 0;
    options.hooks.adjust = [](controller::CoreOptions& core) {
      // The jobs here want more devices than there are, and wait: only their actors run.
      core.infeasible_grace_ms = 3'600'000;
      core.actor_supervision = {{.child = "*",
                                 .event = actor::ChildEvent::kFailed,
                                 .verdict = actor::Verdict::kRestart,
                                 .backoff_ms = 10,
                                 .backoff_max_ms = 10,
                                 .restarts = 2,
                                 .per_ms = 3'600'000}};
    };
    auto cluster = LocalCluster::Start(std::move(options));
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    cluster_ = std::move(*cluster);
    AddWorker("a0");
    job_ = SubmitJob();
  }

  void AddWorker(const std::string& name, const std::vector<std::string>& flags = {}) {
    SubprocessOptions options;
    options.args = {kWorkerBinary,  "--address", fmt::format("127.0.0.1:{}", cluster_->port()),
                    "--name",       name,        "--device",
                    "cpu",          "--profile", "off",
                    "--memory-mib", "64"};
    options.args.insert(options.args.end(), flags.begin(), flags.end());
    options.stderr_to = OutputTo::File(cluster_->File(name + ".log"));
    options.death_signal = SIGKILL;
    auto process = Subprocess::Start(options);
    ASSERT_TRUE(process.has_value()) << process.error();
    workers_[name] = std::move(*process);
    ASSERT_TRUE(Eventually([&] {
      const auto infos = cluster_->client().Workers();
      if (!infos.has_value()) return false;
      for (const auto& info : *infos) {
        if (info.name == name && info.state == "READY") return true;
      }
      return false;
    }));
  }
  int64_t SubmitJob() {
    const auto id = cluster_->Submit(ByteJob(8, 1, 5), SampleBytes(20'000));
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  controller::ControlLoop& loop() { return cluster_->server().loop(); }

  Result<ActorRef> Spawn(const std::string& type, const std::string& args = "",
                         const std::string& worker = "", int64_t job = 0) {
    auto made = std::make_shared<std::promise<Result<ActorRef>>>();
    loop().SpawnActor(JobId(job == 0 ? job_ : job), type, args, worker,
                      [made](Result<ActorRef> ref) { made->set_value(std::move(ref)); });
    return made->get_future().get();
  }
  std::future<Result<std::string>> Ask(const ActorRef& ref, const std::string& payload,
                                       int64_t deadline_ms = kPatienceMs) {
    auto answer = std::make_shared<std::promise<Result<std::string>>>();
    // A second answer would throw here.
    loop().AskActor(ref, payload, deadline_ms,
                    [answer](Result<std::string> reply) { answer->set_value(std::move(reply)); });
    return answer->get_future();
  }
  pid_t PidOf(const ActorRef& ref) {
    const Result<std::string> pid = Ask(ref, "pid").get();
    EXPECT_TRUE(pid.has_value()) << pid.error();
    return pid.has_value() ? std::stoi(*pid) : 0;
  }
  Status Stop(const ActorRef& ref) {
    std::promise<Status> stopped;
    loop().StopActor(ref, [&](Status status) { stopped.set_value(std::move(status)); });
    return stopped.get_future().get();
  }
  std::shared_ptr<News> Watch(const ActorRef& ref) {
    auto news = std::make_shared<News>();
    loop().WatchActor(ref, [news](const ActorAnswer& answer) { news->Add(answer); });
    return news;
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::map<std::string, std::unique_ptr<Subprocess>> workers_;
  int64_t job_ = 0;
};

TEST_F(Actors, LiveInAProcessOfTheirJobAndAnswer) {
  const Result<ActorRef> echo = Spawn("echo"), adder = Spawn("adder", "40");
  ASSERT_TRUE(echo.has_value()) << echo.error();
  ASSERT_TRUE(adder.has_value()) << adder.error();
  EXPECT_EQ(Ask(*echo, std::string("a\0b", 3)).get().value(), std::string("a\0b", 3));
  EXPECT_EQ(Ask(*adder, "2").get().value(), "42");
  EXPECT_EQ(Ask(*adder, "3").get().value(), "45");
  EXPECT_EQ(Ask(*adder, "x").get().error().message(), "'x' is no number");
  const std::string large(proto::kMaxActorPayloadBytes, 'x');
  EXPECT_EQ(Ask(*echo, large).get().value(), large);
  EXPECT_THAT(Ask(*echo, "large").get().error().message(), HasSubstr("has 16777216 bytes"));
  EXPECT_EQ(Ask(*echo, large + "x").get().error().code(), StatusCode::kInvalidArgument);
  const pid_t process = PidOf(*echo);
  EXPECT_NE(process, workers_.at("a0")->pid());
  EXPECT_EQ(PidOf(Spawn("echo").value()), process);
  const int64_t other = SubmitJob();
  const pid_t of_other = PidOf(Spawn("echo", "", "", other).value());
  EXPECT_NE(of_other, process);
  ASSERT_TRUE(cluster_->client().Cancel(other).ok());
  EXPECT_TRUE(Eventually([&] { return !Alive(of_other); }));
  EXPECT_TRUE(Alive(process));
}

TEST_F(Actors, ASpawnThatCannotBeSaysWhy) {
  EXPECT_THAT(Spawn("oracle").error().message(), HasSubstr("there are: adder, echo, points"));
  EXPECT_EQ(Spawn("adder", "x").error().message(), "'x' is no number");
  EXPECT_THAT(Spawn("echo", "", "a9").error().message(), HasSubstr("'a9', which is not ready"));
}

TEST_F(Actors, ADeadlineAndAStopEndWhatIsKept) {
  const ActorRef ref = Spawn("echo").value();
  EXPECT_EQ(Ask(ref, "keep", 20).get().error().code(), StatusCode::kDeadlineExceeded);
  auto kept = Ask(ref, "keep");
  const auto news = Watch(ref);
  EXPECT_TRUE(Stop(ref).ok());
  EXPECT_EQ(kept.get().error().code(), StatusCode::kCancelled);
  EXPECT_EQ(news->At(0).news, ActorNews::kStopped);
  EXPECT_EQ(Ask(ref, "x").get().error().code(), StatusCode::kNotFound);
  EXPECT_EQ(Stop(ref).code(), StatusCode::kNotFound);
}

TEST_F(Actors, AKilledProcessAnswersWhatWaitsAndItsActorsComeBack) {
  const ActorRef ref = Spawn("echo").value();
  const pid_t process = PidOf(ref);
  const auto news = Watch(ref);
  std::vector<std::future<Result<std::string>>> kept;
  for (int i = 0; i < 20; ++i) kept.push_back(Ask(ref, "keep"));
  ASSERT_EQ(::kill(process, SIGKILL), 0);
  for (auto& one : kept) {
    const Result<std::string> answer = one.get();
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code(), StatusCode::kAborted);
    EXPECT_THAT(answer.error().message(), HasSubstr("killed by signal 9"));
  }
  const ActorAnswer again = news->At(0);
  ASSERT_EQ(again.news, ActorNews::kRestarted);
  EXPECT_EQ(Ask(ref, "x").get().error().code(), StatusCode::kNotFound);
  EXPECT_NE(PidOf(again.ref), process);
  EXPECT_TRUE(workers_.at("a0")->Running());
}

TEST_F(Actors, AFailedActorIsMadeAgainUntilItsBudgetIsSpentAndTheJobIsTold) {
  ActorRef ref = Spawn("echo").value();
  const ActorRef neighbour = Spawn("echo").value();
  const auto news = Watch(ref);
  const pid_t process = PidOf(ref);
  EXPECT_THAT(Ask(ref, "fail").get().error().message(), HasSubstr("it was told to fail ?"));
  ref = news->At(0).ref;
  // The failure of one actor is not that of its process.
  EXPECT_EQ(PidOf(ref), process);
  EXPECT_EQ(PidOf(neighbour), process);
  EXPECT_THAT(Ask(ref, "crash").get().error().message(), HasSubstr("killed by signal 6"));
  ref = news->At(1).ref;
  EXPECT_EQ(Ask(ref, "crash").get().error().code(), StatusCode::kAborted);
  const ActorAnswer end = news->At(2);
  EXPECT_EQ(end.news, ActorNews::kGaveUp);
  EXPECT_TRUE(end.last);
  EXPECT_TRUE(Eventually([&] {
    const auto log = cluster_->client().Logs(job_);
    return log.has_value() && std::any_of(log->begin(), log->end(), [](const std::string& line) {
             return line.find("given up") != std::string::npos;
           });
  }));
  EXPECT_EQ(news->count(), 3u);
}

TEST_F(Actors, AStuckActorIsMadeAgainInANewProcess) {
  AddWorker("a1", {"--actor-silent-s", "1"});
  const ActorRef ref = Spawn("echo", "", "a1").value();
  const pid_t process = PidOf(ref);
  const auto news = Watch(ref);
  const Result<std::string> answer = Ask(ref, "hang").get();
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), StatusCode::kAborted);
  EXPECT_THAT(answer.error().message(), HasSubstr("has been at one message for"));
  const ActorAnswer again = news->At(0);
  ASSERT_EQ(again.news, ActorNews::kRestarted);
  EXPECT_NE(PidOf(again.ref), process);
  EXPECT_TRUE(Eventually([&] { return !Alive(process); }));
  EXPECT_TRUE(workers_.at("a1")->Running());
}

TEST_F(Actors, AKilledWorkerAnswersWhatWaitsAndItsActorsMove) {
  AddWorker("a1");
  const ActorRef ref = Spawn("echo", "", "a0").value(), moving = Spawn("echo").value();
  ASSERT_EQ(moving.worker, "a1");
  const pid_t process = PidOf(moving);
  const auto news = Watch(moving);
  auto kept = Ask(moving, "keep");
  ASSERT_TRUE(workers_.at("a1")->Signal(SIGKILL).ok());
  const Result<std::string> answer = kept.get();
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), StatusCode::kAborted);
  const ActorAnswer again = news->At(0);
  ASSERT_EQ(again.news, ActorNews::kRestarted);
  EXPECT_EQ(again.ref.worker, "a0");
  EXPECT_EQ(Ask(again.ref, "x").get().value(), "x");
  EXPECT_EQ(Ask(ref, "x").get().value(), "x");
  EXPECT_TRUE(Eventually([&] { return !Alive(process); }));
}

TEST_F(Actors, AStoppedControllerAnswersWhatWaitsAndTheProcessesEnd) {
  const ActorRef ref = Spawn("echo").value();
  const pid_t process = PidOf(ref);
  auto kept = Ask(ref, "keep");
  const auto news = Watch(ref);
  cluster_->server().Stop();
  EXPECT_EQ(kept.get().error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(news->At(0).news, ActorNews::kStopped);
  EXPECT_TRUE(Eventually([&] { return !Alive(process); }));
  EXPECT_EQ(Ask(ref, "x").get().error().code(), StatusCode::kUnavailable);
}

// The loop of a user: a client drives a job and asks actors, over one session.
TEST_F(Actors, AClientsSessionSpawnsAndAsksThem) {
  ASSERT_TRUE(cluster_->client().Cancel(job_).ok());
  const auto session = cluster_->client().OpenSession(DoublingJob(0).value());
  ASSERT_TRUE(session.has_value()) << session.error();
  const auto adder = (*session)->Spawn("adder", "40");
  ASSERT_TRUE(adder.has_value()) << adder.error();
  auto first = (*session)->Ask(*adder, "2");
  auto second = (*session)->Ask(*adder, "3");
  const auto y = (*session)->Run("double", {{"x", client::Tensor::Of<float>({1, 2}, {1, 2})}});
  ASSERT_TRUE(y.has_value()) << y.error();
  EXPECT_THAT(y->tensors.at("y").Values<float>(), ::testing::ElementsAre(2, 4));
  EXPECT_EQ(second.get().value(), "45");
  EXPECT_EQ(first.get().value(), "42");
  EXPECT_THAT((*session)->Spawn("oracle").error().message(),
              HasSubstr("there are: adder, echo, points"));
  EXPECT_EQ((*session)->Ask(*adder, "x").get().error().message(), "'x' is no number");
  client::ActorRef whichever = *adder;
  whichever.generation = 0;
  EXPECT_EQ((*session)->Ask(whichever, "1").get().value(), "46");
  client::ActorRef another = *adder;
  ++another.generation;
  EXPECT_EQ((*session)->Ask(another, "1").get().error().code(), StatusCode::kNotFound);
  EXPECT_EQ((*session)->Ask(*adder, "1", -1).get().error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE((*session)->Stop(*adder).ok());
  EXPECT_FALSE((*session)->Ask(*adder, "1").get().has_value());
  EXPECT_TRUE((*session)->Close().ok());
}

TEST_F(Actors, ASessionTellsAndWatchesThem) {
  ASSERT_TRUE(cluster_->client().Cancel(job_).ok());
  const auto session = cluster_->client().OpenSession(DoublingJob(0).value());
  ASSERT_TRUE(session.has_value()) << session.error();
  client::Session& s = **session;
  const client::ActorRef adder = s.Spawn("adder", "0").value();
  auto watch = s.Watch(adder);
  // More than may be unanswered at once: those behind wait for room.
  std::vector<std::future<Status>> told;
  for (int i = 0; i < 1'000; ++i) told.push_back(s.Tell(adder, "1"));
  int64_t taken = 0;
  for (auto& one : told) {
    const Status status = one.get();
    taken += status.ok() ? 1 : 0;
    // The mailbox is bounded, too.
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  }
  EXPECT_GT(taken, 0);
  EXPECT_EQ(s.Ask(adder, "0").get().value(), std::to_string(taken));

  const client::ActorRef echo = s.Spawn("echo").value();
  auto first = s.Watch(echo), again = s.Watch(echo);
  // The actor may have failed before it is said that its mailbox had the message.
  const Status failing = s.Tell(echo, "fail").get();
  EXPECT_TRUE(failing.ok() || failing.code() == StatusCode::kAborted) << failing;
  const client::ActorNews news = first.get().value();
  EXPECT_EQ(news.fate, client::ActorFate::kRestarted);
  EXPECT_EQ(news.next.id, echo.id);
  EXPECT_EQ(news.next.generation, echo.generation + 1);
  // Or the failure came first: then it is gone for who watches.
  EXPECT_THAT(news.why.message(), AnyOf(HasSubstr("it was told to fail"), HasSubstr("is gone")));
  EXPECT_EQ(again.get().value().next, news.next);
  EXPECT_EQ(s.Tell(echo, "x").get().code(), StatusCode::kNotFound);
  EXPECT_EQ(s.Watch(echo).get().error().code(), StatusCode::kNotFound);
  EXPECT_EQ(s.Ask(news.next, "x").get().value(), "x");
  EXPECT_TRUE(s.Stop(adder).ok());
  EXPECT_EQ(watch.get().value().fate, client::ActorFate::kStopped);

  auto to_the_end = s.Watch(news.next);
  EXPECT_TRUE(s.Close().ok());
  EXPECT_FALSE(to_the_end.get().has_value()) << "the session ended first";
  EXPECT_FALSE(s.Tell(news.next, "x").get().ok());
}

// A thread cannot be taken from an actor, so its process goes, as after a crash.
TEST(ActorHost, AnActorThatIsStuckFailsAndEndsItsProcess) {
  worker::HostActorOptions options;
  options.command = {kWorkerBinary, "host-actors"};
  options.actor_silent_ms = 200;
  std::map<uint64_t, std::promise<proto::ActorEvent>> started, failed;
  for (const uint64_t actor : {1, 2}) started[actor], failed[actor];
  std::promise<proto::ActorReply> answered;
  auto host = worker::ActorHost::Start(JobId(1), options, [&](proto::UpBody body) {
    if (const auto* reply = std::get_if<proto::ActorReply>(&body)) answered.set_value(*reply);
    const auto* event = std::get_if<proto::ActorEvent>(&body);
    if (event == nullptr) return;
    const bool fails = event->kind == proto::ActorEventKind::kFailed;
    (fails ? failed : started).at(event->actor).set_value(*event);
  });
  ASSERT_TRUE(host.has_value()) << host.error();
  for (const uint64_t actor : {1, 2}) {
    (*host)->Spawn({JobId(1), actor, 1, "echo", ""});
    ASSERT_EQ(started.at(actor).get_future().get().kind, proto::ActorEventKind::kStarted);
  }
  (*host)->Message({JobId(1), 1, 1, 7, false, kPatienceMs, "hang"});
  const proto::ActorEvent stuck = failed.at(1).get_future().get();
  EXPECT_THAT(stuck.message, HasSubstr("has been at one message for"));
  const proto::ActorReply reply = answered.get_future().get();
  EXPECT_EQ(reply.code, StatusCode::kAborted);
  EXPECT_THAT(reply.message, HasSubstr("at one message for"));
  const proto::ActorEvent neighbour = failed.at(2).get_future().get();
  EXPECT_THAT(neighbour.message,
              HasSubstr("an actor in it was at one message for more than 200 ms"));
  EXPECT_TRUE((*host)->ended());
}

TEST(ActorHost, AProcessThatIsSilentIsKilled) {
  worker::HostActorOptions options;
  options.command = {kWorkerBinary, "host-actors"};
  options.ping_ms = 10;
  options.silent_ms = 200;
  std::promise<proto::ActorEvent> failed;
  auto host = worker::ActorHost::Start(JobId(1), options, [&](proto::UpBody body) {
    const auto* event = std::get_if<proto::ActorEvent>(&body);
    if (event != nullptr && event->kind == proto::ActorEventKind::kFailed) {
      failed.set_value(*event);
    }
  });
  ASSERT_TRUE(host.has_value()) << host.error();
  ASSERT_EQ(::kill((*host)->pid(), SIGSTOP), 0);
  (*host)->Spawn({JobId(1), 1, 1, "echo", ""});
  const proto::ActorEvent event = failed.get_future().get();
  EXPECT_EQ(event.code, StatusCode::kAborted);
  EXPECT_THAT(event.message, HasSubstr("silent for 200 ms and was killed"));
  EXPECT_TRUE((*host)->ended());
}

}  // namespace
}  // namespace meshwright::testing
