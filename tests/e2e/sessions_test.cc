// Sessions whose client, worker, controller or network dies, as processes: docs/programs.md says
// what happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/philox.h"
#include "tests/e2e/cuttable_proxy.h"
#include "tests/e2e/driven_job.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::Answer;
using client::JobState;
using client::Session;
using ::testing::HasSubstr;

class SessionFaults : public FaultFixture {
 protected:
  std::unique_ptr<Session> Open(int64_t grace_s, client::SessionOptions options = {}) {
    return OpenBy(client(), grace_s, options);
  }

  static std::unique_ptr<Session> OpenBy(client::Client& by, int64_t grace_s,
                                         client::SessionOptions options = {}) {
    const auto job = MakeDrivenJob(2, grace_s);
    EXPECT_TRUE(job.has_value()) << job.error();
    if (!job.has_value()) return nullptr;
    auto session = by.OpenSession(*job, options);
    EXPECT_TRUE(session.has_value()) << session.error();
    return session.has_value() ? *std::move(session) : nullptr;
  }

  static Result<std::unique_ptr<client::Client>> Connect(const std::string& address) {
    client::Client::Options options;
    options.address = address;
    return client::Client::Connect(options);
  }

  // A process that drives a job of its own, once it has made some steps.
  std::unique_ptr<Subprocess> StartClient(int64_t grace_s) {
    SubprocessOptions options;
    options.args = {MESHWRIGHT_SESSION_CLIENT, cluster().address(), std::to_string(grace_s)};
    options.stdout_to = OutputTo::File(cluster().File("client.log"));
    options.stderr_to = OutputTo::File(cluster().File("client.log"));
    options.death_signal = SIGKILL;
    auto process = Subprocess::Start(options);
    EXPECT_TRUE(process.has_value()) << process.error();
    if (!process.has_value()) return nullptr;
    EXPECT_TRUE(
        WaitUntil([&] { return ClientLog().find("step 5\n") != std::string::npos; }, kSoonMs))
        << ClientLog();
    leftovers_.Note();
    return *std::move(process);
  }
  std::string ClientLog() const { return ReadFile(cluster_->File("client.log")).value_or(""); }

  // The error of each call that is under way, all of which end soon.
  static std::vector<Status> Errors(std::vector<std::future<Result<Answer>>>& calls) {
    std::vector<Status> errors;
    for (auto& call : calls) {
      const bool ended =
          call.wait_for(std::chrono::milliseconds(kSoonMs)) == std::future_status::ready;
      EXPECT_TRUE(ended) << "a call hangs";
      if (!ended) continue;
      const Result<Answer> answer = call.get();
      if (!answer.has_value()) errors.push_back(answer.error());
    }
    return errors;
  }

  static std::vector<std::future<Result<Answer>>> Calls(Session& session, int64_t count) {
    std::vector<std::future<Result<Answer>>> calls;
    for (int64_t i = 0; i < count; ++i) calls.push_back(session.Call("step", DrivenRows(i)));
    return calls;
  }
};

TEST_F(SessionFaults, AKilledClientsJobEndsWhenItsGraceTimeIsOver) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const auto process = StartClient(1);
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(process->Signal(SIGKILL).ok());
  ASSERT_TRUE(process->Wait(kSoonMs).has_value());
  const client::JobInfo ended = EndOf(1);
  EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
  const auto logs = client().Logs(1);
  ASSERT_TRUE(logs.has_value()) << logs.error();
  EXPECT_THAT(*logs, ::testing::Contains(HasSubstr("no client for 1 s (driver.grace_s)")));
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  ExpectAJobSucceeds(2, 1);
}

TEST_F(SessionFaults, ASuccessorGoesOnWhereAKilledClientWasStopped) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const auto process = StartClient(600);
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(process->Signal(SIGKILL).ok());
  ASSERT_TRUE(process->Wait(kSoonMs).has_value());
  auto session = client().AttachSession(1);
  ASSERT_TRUE(session.has_value()) << session.error();
  const auto moments = (*session)->ReadState({"opt.m/head.weight"});
  ASSERT_TRUE(moments.has_value()) << moments.error();
  EXPECT_THAT(moments->at("opt.m/head.weight").Values<double>(),
              ::testing::Contains(::testing::Ne(0.0)))
      << "the state is that of the killed client's steps";
  const auto next = (*session)->Run("step", DrivenRows(0));
  ASSERT_TRUE(next.has_value()) << next.error();
  EXPECT_GE(next->step, 5) << "the steps of both are counted";
  EXPECT_TRUE((*session)->Close({.end_job = true}).ok());
  EXPECT_EQ(EndOf(1).state, JobState::kSucceeded);
}

TEST_F(SessionFaults, AKilledWorkerEndsEveryCallWithItsName) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const auto session = Open(600);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->Run("step", DrivenRows(0)).has_value());
  leftovers_.Note();
  // A worker that stands still: the calls are under way when it dies.
  ASSERT_NO_FATAL_FAILURE(Freeze(cluster().worker(1)));
  auto calls = Calls(*session, 30);
  Kill(cluster().worker(1));
  const std::vector<Status> errors = Errors(calls);
  EXPECT_EQ(errors.size(), 30u);
  for (const Status& error : errors) {
    EXPECT_THAT(error.message(), HasSubstr(ProcessCluster::WorkerName(1)));
  }
  const client::JobInfo ended = EndOf(session->job_id());
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ended.reason, "WorkerLost") << ended.message;
  ExpectHoldsNothingOfAJob(0);
  const auto late = session->Run("step", DrivenRows(0));
  ASSERT_FALSE(late.has_value());
  EXPECT_THAT(late.error().message(), HasSubstr(ProcessCluster::WorkerName(1)));
}

TEST_F(SessionFaults, ARestartedControllerSaysWhatBecameOfTheJob) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const auto session = Open(600);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->Run("step", DrivenRows(0)).has_value());
  leftovers_.Note();
  ASSERT_NO_FATAL_FAILURE(Freeze(cluster().worker(1)));
  auto calls = Calls(*session, 10);
  Kill(cluster().controller());
  ASSERT_TRUE(cluster().worker(1).Signal(SIGCONT).ok());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  const std::vector<Status> errors = Errors(calls);
  EXPECT_EQ(errors.size(), 10u);
  for (const Status& error : errors) {
    EXPECT_THAT(error.message(), HasSubstr("FAILED (ControllerRestarted)"));
  }
  const Status ready = cluster().WaitReady(2);
  ASSERT_TRUE(ready.ok()) << ready;
  ExpectAJobSucceeds(2, 1);
}

TEST_F(SessionFaults, AControllerThatStaysAwayEndsEveryCallInTime) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const auto session = Open(600, {.reconnect_ms = 500});
  ASSERT_NE(session, nullptr);
  ASSERT_NO_FATAL_FAILURE(Freeze(cluster().worker(1)));
  auto calls = Calls(*session, 10);
  Kill(cluster().controller());
  ASSERT_TRUE(cluster().worker(1).Signal(SIGCONT).ok());
  const std::vector<Status> errors = Errors(calls);
  EXPECT_EQ(errors.size(), 10u);
  for (const Status& error : errors) {
    EXPECT_EQ(error.code(), StatusCode::kUnavailable);
    EXPECT_THAT(error.message(), HasSubstr("tried again for 500 ms"));
    EXPECT_THAT(error.message(), HasSubstr(cluster().address()));
  }
  EXPECT_EQ(session->Close().code(), StatusCode::kUnavailable);
}

class QueuedSession : public SessionFaults, public ::testing::WithParamInterface<int> {};

// A job that waits for devices has lost nothing: its session goes on with the next controller.
TEST_P(QueuedSession, OutlivesTheController) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  std::promise<std::unique_ptr<Session>> opened;
  const auto waiting = Connect(cluster().address());
  ASSERT_TRUE(waiting.has_value()) << waiting.error();
  Executor opener("opener");
  opener.Post([&] { opened.set_value(OpenBy(**waiting, 600)); });
  ASSERT_TRUE(WaitUntil([&] { return client().Get(1).has_value(); }, kSoonMs));
  End(cluster().controller(), GetParam());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  ASSERT_TRUE(cluster().AddWorker().ok());
  const std::unique_ptr<Session> session = opened.get_future().get();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->job_id(), 1) << "it was not submitted twice";
  EXPECT_TRUE(session->Run("step", DrivenRows(0)).has_value());
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(EndOf(1).state, JobState::kSucceeded);
}

INSTANTIATE_TEST_SUITE_P(Signals, QueuedSession, ::testing::Values(SIGKILL, SIGTERM),
                         [](const auto& signal) {
                           return signal.param == SIGKILL ? "killed" : "stopped";
                         });

// The network breaks again and again under calls: each is carried out once, in its order, and the
// losses are those of a session that nothing disturbed.
TEST_F(SessionFaults, BrokenConnectionsNeitherLoseNorRepeatACall) {
  constexpr int64_t kCalls = 300;
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const auto losses = [&](client::Client& by, const std::function<void(int64_t)>& meanwhile) {
    std::vector<double> all;
    const auto session = OpenBy(by, 600);
    if (session == nullptr) return all;
    std::vector<std::future<Result<Answer>>> calls;
    for (int64_t i = 0; i < kCalls; ++i) {
      calls.push_back(session->Call("step", DrivenRows(i)));
      meanwhile(i);
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const Result<Answer> answer = calls[i].get();
      EXPECT_TRUE(answer.has_value()) << answer.error();
      if (!answer.has_value()) break;
      EXPECT_EQ(answer->step, static_cast<int64_t>(i)) << "a call was lost, or made twice";
      all.push_back(answer->values.at("loss"));
    }
    EXPECT_TRUE(session->Close().ok());
    return all;
  };
  const std::vector<double> undisturbed = losses(client(), [](int64_t) {});
  const std::string address = cluster().address();
  const auto proxy = CuttableProxy::Start(std::stoi(address.substr(address.rfind(':') + 1)));
  ASSERT_TRUE(proxy.has_value()) << proxy.error();
  const auto by = Connect((*proxy)->address());
  ASSERT_TRUE(by.has_value()) << by.error();
  const int64_t before = (*proxy)->connections();
  const std::vector<double> disturbed = losses(**by, [&](int64_t call) {
    if (PhiloxBits(11, 0, 0, static_cast<uint64_t>(call)) % 20 == 0) (*proxy)->Cut();
  });
  EXPECT_GT((*proxy)->connections(), before) << "nothing was cut";
  EXPECT_EQ(disturbed, undisturbed);
}

}  // namespace
}  // namespace meshwright::testing
