// Host actors while processes are killed, in the middle of questions: the actor's process, its
// worker, the controller, the client. Every question is answered once, and actors go on or end as
// docs/programs.md says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/file.h"
#include "client/session.h"
#include "tests/e2e/actor_client/driven_job.h"
#include "tests/e2e/process_cluster.h"

namespace meshwright::testing {
namespace {

using client::ActorFate;
using client::ActorNews;
using client::ActorRef;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 60'000;

// Where nobody reaps orphans, a dead one stays as a zombie.
bool Alive(pid_t pid) {
  const auto stat = ReadFile(fmt::format("/proc/{}/stat", pid));
  return stat.has_value() && stat->find(") Z ") == std::string::npos;
}

template <typename Condition>
bool Eventually(const Condition& condition) {
  const Deadline deadline = Deadline::After(kPatienceMs);
  while (!deadline.expired()) {
    if (condition()) return true;
    (void)::poll(nullptr, 0, 20);
  }
  return false;
}

// What came, or an error of its own when nothing does.
template <typename T>
Result<T> Await(std::future<Result<T>> future) {
  if (future.wait_for(std::chrono::milliseconds(kPatienceMs)) == std::future_status::ready) {
    return future.get();
  }
  ADD_FAILURE() << "a question was not answered";
  return Fail(Internal("not answered"));
}

// Asks actors as fast as credits allow, until it is told to end.
class Storm {
 public:
  Storm(client::Session& session, std::vector<ActorRef> actors)
      : session_(session), actors_(std::move(actors)) {
    thread_.Post([this] { Ask(); });
  }
  // Returns once `count` questions were asked.
  bool Asked(size_t count) {
    return Eventually([&] { return asked_ >= count; });
  }
  // The answers to all questions, in their order.
  std::vector<Result<std::string>> End() {
    ending_ = true;
    thread_.Stop();
    std::vector<Result<std::string>> answers;
    for (auto& future : futures_) answers.push_back(Await(std::move(future)));
    return answers;
  }

 private:
  void Ask() {
    while (!ending_ && futures_.size() < 200'000) {
      for (const ActorRef& actor : actors_) {
        // Some are never answered by the actor: whatever ends them must say so.
        const bool keep = futures_.size() % 101 == 0;
        futures_.push_back(
            session_.Ask(actor, keep ? "keep" : "x", keep ? kPatienceMs / 2 : 5'000));
        ++asked_;
      }
      (void)::poll(nullptr, 0, 1);
    }
  }

  client::Session& session_;
  const std::vector<ActorRef> actors_;
  std::atomic<bool> ending_{false};
  std::atomic<size_t> asked_{0};
  std::vector<std::future<Result<std::string>>> futures_;  // on the thread until it ends
  Executor thread_{"storm"};
};

class ActorKills : public ::testing::Test {
 protected:
  void SetUp() override {
    ProcessClusterOptions options;
    options.workers = 2;
    options.worker_binary = MESHWRIGHT_ACTOR_WORKER;
    auto cluster = ProcessCluster::Start(std::move(options));
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    cluster_ = std::move(*cluster);
  }
  // Of the job's one device, on either worker.
  std::unique_ptr<client::Session> Open(int64_t grace_s) {
    auto session = cluster_->client().OpenSession(DoublingJob(grace_s).value());
    EXPECT_TRUE(session.has_value()) << session.error();
    return session.has_value() ? std::move(*session) : nullptr;
  }
  pid_t PidOf(client::Session& session, const ActorRef& echo) {
    const auto pid = Await(session.Ask(echo, "pid"));
    EXPECT_TRUE(pid.has_value()) << pid.error();
    return pid.has_value() ? std::stoi(*pid) : 0;
  }
  // The worker whose mesh runs the job dies with it; the other one's actors are what a test is
  // about.
  std::string IdleWorker() {
    const auto infos = cluster_->client().Workers();
    EXPECT_TRUE(infos.has_value());
    for (const client::WorkerInfo& info : *infos) {
      if (info.busy_devices == 0) return info.name;
    }
    ADD_FAILURE() << "both workers run the job";
    return "";
  }
  int IndexOf(const std::string& worker) { return worker == ProcessCluster::WorkerName(0) ? 0 : 1; }

  std::unique_ptr<ProcessCluster> cluster_;
};

TEST_F(ActorKills, OfTheirProcessAnswerWhoAsksAndTheyAreStartedAgain) {
  const auto session = Open(5);
  ASSERT_NE(session, nullptr);
  const ActorRef a = session->Spawn("echo", "", "w0").value();
  const ActorRef b = session->Spawn("echo", "", "w0").value();
  const ActorRef apart = session->Spawn("echo", "", "w1").value();
  const pid_t pid = PidOf(*session, a);
  auto watch = session->Watch(a);
  Storm storm(*session, {a, b}), beside(*session, {apart});
  ASSERT_TRUE(storm.Asked(200) && beside.Asked(50));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const ActorNews news = Await(std::move(watch)).value();
  int64_t told_why = 0;
  for (const auto& answer : storm.End()) {
    if (answer.has_value()) continue;
    const StatusCode code = answer.error().code();
    EXPECT_THAT(code, AnyOf(Eq(StatusCode::kAborted), Eq(StatusCode::kNotFound))) << answer.error();
    told_why += answer.error().message().find("killed by signal 9") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(told_why, 0);
  EXPECT_EQ(news.fate, ActorFate::kRestarted);
  EXPECT_THAT(news.why.message(), HasSubstr("killed by signal 9"));
  EXPECT_EQ(news.next.generation, a.generation + 1);
  EXPECT_NE(PidOf(*session, news.next), pid);
  EXPECT_EQ(Await(session->Ask(a, "x")).error().code(), StatusCode::kNotFound);
  // Those of other workers notice nothing: only what is kept ends, with them.
  EXPECT_TRUE(session->Stop(apart).ok());
  for (const auto& answer : beside.End()) {
    if (answer.has_value()) continue;
    EXPECT_THAT(answer.error().code(), AnyOf(Eq(StatusCode::kCancelled), Eq(StatusCode::kNotFound)))
        << answer.error();
  }
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(ActorKills, OfTheirWorkerMoveThemToAnotherOne) {
  const auto session = Open(5);
  ASSERT_NE(session, nullptr);
  const std::string idle = IdleWorker();
  const ActorRef pinned = session->Spawn("echo", "", idle).value();
  const ActorRef other = session->Spawn("echo", "", idle == "w0" ? "w1" : "w0").value();
  // Two that may be anywhere: one lands on each worker.
  ActorRef free = session->Spawn("echo").value();
  if (free.worker != idle) free = session->Spawn("echo").value();
  ASSERT_EQ(free.worker, idle);
  const pid_t pid = PidOf(*session, free);
  auto watch = session->Watch(free);
  Storm storm(*session, {free, pinned});
  ASSERT_TRUE(storm.Asked(200));
  ASSERT_TRUE(cluster_->worker(IndexOf(idle)).Signal(SIGKILL).ok());
  const ActorNews news = Await(std::move(watch)).value();
  EXPECT_EQ(news.fate, ActorFate::kRestarted);
  EXPECT_EQ(news.next.worker, other.worker);
  EXPECT_THAT(news.why.message(), HasSubstr(idle));
  for (const auto& answer : storm.End()) {
    if (answer.has_value()) continue;
    EXPECT_THAT(answer.error().code(), AnyOf(Eq(StatusCode::kAborted), Eq(StatusCode::kNotFound)))
        << answer.error();
  }
  EXPECT_EQ(Await(session->Ask(news.next, "x")).value(), "x");
  EXPECT_EQ(Await(session->Ask(other, "x")).value(), "x");
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); })) << "a process outlives its worker";
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(ActorKills, OfTheControllerEndThemAndEverybodyIsTold) {
  ActorRef before;
  pid_t pid = 0;
  int64_t job = 0;
  {
    const auto session = Open(60);
    ASSERT_NE(session, nullptr);
    job = session->job_id();
    before = session->Spawn("echo").value();
    pid = PidOf(*session, before);
    auto watch = session->Watch(before);
    Storm storm(*session, {before});
    ASSERT_TRUE(storm.Asked(200));
    ASSERT_TRUE(cluster_->controller().Signal(SIGKILL).ok());
    ASSERT_TRUE(cluster_->controller().Wait(kPatienceMs).has_value());
    EXPECT_FALSE(Await(std::move(watch)).has_value());
    int64_t unavailable = 0;
    for (const auto& answer : storm.End()) {
      if (!answer.has_value()) unavailable += answer.error().code() == StatusCode::kUnavailable;
    }
    EXPECT_GT(unavailable, 0);
  }
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); })) << "a process outlives its session";
  ASSERT_TRUE(cluster_->RestartController().ok());
  ASSERT_TRUE(cluster_->WaitReady(2).ok());
  const auto session = Open(5);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(Await(session->Ask(before, "x")).error().code(), StatusCode::kNotFound);
  const ActorRef after = session->Spawn("echo").value();
  EXPECT_NE(after.id, before.id) << "an id was given twice";
  EXPECT_EQ(Await(session->Ask(after, "x")).value(), "x");
  EXPECT_TRUE(session->Close().ok());
  (void)cluster_->client().Cancel(job);
}

class ClientKills : public ActorKills {
 protected:
  // A client as a process, which asks; its job and its actor.
  void StartClient(int64_t grace_s) {
    SubprocessOptions options;
    options.args = {MESHWRIGHT_ACTOR_CLIENT, cluster_->address(), std::to_string(grace_s)};
    options.stdout_to = OutputTo::File(cluster_->File("client.out"));
    options.stderr_to = OutputTo::File(cluster_->File("client.log"));
    options.death_signal = SIGKILL;
    auto process = Subprocess::Start(options);
    ASSERT_TRUE(process.has_value()) << process.error();
    client_ = std::move(*process);
    ASSERT_TRUE(Eventually([&] {
      std::istringstream line(ReadFile(cluster_->File("client.out")).value_or(""));
      return static_cast<bool>(line >> job_ >> adder_.worker >> adder_.id >> adder_.generation);
    })) << ReadFile(cluster_->File("client.log")).value_or("");
  }
  void KillClient() {
    ASSERT_TRUE(client_->Signal(SIGKILL).ok());
    ASSERT_TRUE(client_->Wait(kPatienceMs).has_value());
  }

  std::unique_ptr<Subprocess> client_;
  int64_t job_ = 0;
  ActorRef adder_;
};

TEST_F(ClientKills, LeaveActorsToTheNextClientOfTheJob) {
  ASSERT_NO_FATAL_FAILURE(StartClient(60));
  ASSERT_NO_FATAL_FAILURE(KillClient());
  const auto session = cluster_->client().AttachSession(job_);
  ASSERT_TRUE(session.has_value()) << session.error();
  const auto sum = Await((*session)->Ask(adder_, "0"));
  ASSERT_TRUE(sum.has_value()) << sum.error();
  EXPECT_GT(std::stoll(*sum), 0) << "what it was told is not forgotten";
  EXPECT_TRUE((*session)->Close().ok());
}

TEST_F(ClientKills, EndActorsWithTheJobWhenNobodyComes) {
  ASSERT_NO_FATAL_FAILURE(StartClient(1));
  pid_t pid = 0;
  {
    const auto session = cluster_->client().AttachSession(job_);
    ASSERT_TRUE(session.has_value()) << session.error();
    pid = PidOf(**session, (*session)->Spawn("echo", "", adder_.worker).value());
    ASSERT_NO_FATAL_FAILURE(KillClient());
    EXPECT_TRUE(Alive(pid));
    // Destroyed without a word, as when its process dies.
  }
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
  const auto info = cluster_->client().Get(job_);
  ASSERT_TRUE(info.has_value());
  EXPECT_TRUE(proto::IsTerminal(info->state)) << info->message;
}

}  // namespace
}  // namespace meshwright::testing
