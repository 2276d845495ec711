// The death of a job's process on a worker: the job's end says how, the worker goes on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ExecutorsOfWorkers : public FaultFixture {
 protected:
  std::string Log(int worker) const {
    return ReadFile(cluster_->File(ProcessCluster::WorkerName(worker) + ".log")).value_or("");
  }
  // The process in which the worker's last mesh runs; 0: there was none.
  pid_t ExecutorOf(int worker) const {
    const std::string log = Log(worker);
    const std::string text = "runs in executor ";
    const size_t at = log.rfind(text);
    return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + text.size());
  }
  // Executors of the workers, with and without a mesh; those that have ended but for their parent
  // are zombies.
  static std::set<pid_t> Executors(bool zombies) {
    std::set<pid_t> found;
    for (const ProcessEntry& process : Descendants()) {
      if (process.name == "mw-executor" && process.zombie == zombies) found.insert(process.pid);
    }
    return found;
  }
  void ExpectAllReady(size_t workers) {
    const auto infos = client().Workers();
    ASSERT_TRUE(infos.has_value()) << infos.error();
    EXPECT_EQ(infos->size(), workers);
    for (const client::WorkerInfo& info : *infos) EXPECT_EQ(info.state, "READY") << info.name;
  }
};

class ExecutorKilledBy : public ExecutorsOfWorkers, public ::testing::WithParamInterface<int> {};

TEST_P(ExecutorKilledBy, FailsItsJobWithSignalAndPlaceAndNothingElse) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(4));
  const int64_t id = StartJob(2, 2);
  const pid_t executor = ExecutorOf(2);
  ASSERT_GT(executor, 0) << Log(2);
  ASSERT_EQ(::kill(executor, GetParam()), 0);
  const client::JobInfo ended = EndOf(id);
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ended.reason, "ExecutorLost") << ended.message;
  EXPECT_THAT(ended.message,
              AllOf(HasSubstr("worker 'w2'"), HasSubstr(fmt::format("executor of job {}", id)),
                    HasSubstr(fmt::format("killed by signal {}", GetParam()))));
  // Between two launches there is no instruction that it is at.
  EXPECT_THAT(ended.message, ::testing::AnyOf(HasSubstr("at instruction"), HasSubstr("in a launch"),
                                              HasSubstr("waited for orders")));
  ExpectAllReady(4);
  for (const int worker : {0, 1, 2, 3}) ExpectHoldsNothingOfAJob(worker);
  EXPECT_EQ(Executors(true), std::set<pid_t>{});
  ExpectAJobSucceeds(2, 2);
  EXPECT_NE(ExecutorOf(2), executor);
}

INSTANTIATE_TEST_SUITE_P(Signals, ExecutorKilledBy, ::testing::Values(SIGKILL, SIGSEGV, SIGABRT));

// A peer that is stopped keeps the device in a transfer: there is an instruction for sure.
TEST_F(ExecutorsOfWorkers, ADeathInATransferNamesStepAndInstruction) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  ASSERT_EQ(::kill(ExecutorOf(1), SIGSTOP), 0);
  // The other one runs into the stopped one within a step, and then stands still.
  int64_t before = -1;
  int same = 0;
  const auto stands = [&] {
    const auto info = client().Get(id);
    const int64_t now = info.has_value() ? info->steps_done : -1;
    same = now == before ? same + 1 : 0;
    before = now;
    return same == 50;
  };
  ASSERT_TRUE(WaitUntil(stands, kSoonMs));
  ASSERT_EQ(::kill(ExecutorOf(0), SIGKILL), 0);
  ASSERT_EQ(::kill(ExecutorOf(1), SIGCONT), 0);
  const client::JobInfo ended = EndOf(id);
  EXPECT_EQ(ended.reason, "ExecutorLost") << ended.message;
  EXPECT_THAT(ended.message, AllOf(HasSubstr("worker 'w0'"),
                                   HasSubstr("of program 'step': rank 0 at instruction "),
                                   HasSubstr("killed by signal 9 (Killed)")));
  ExpectAllReady(2);
}

// Who is stopped is named with its place and with who waits for it; then its run is ended, and the
// job goes on in another process.
TEST_F(ExecutorsOfWorkers, AStoppedOneIsNamedAndEndedAndTheJobRecovers) {
  constexpr int64_t kStallAndRecoverMs = 60'000;
  ProcessClusterOptions options;
  options.workers = 2;
  options.worker_args = {"--executor-end-s=1"};
  ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
  ir::JobRequest job = ByteJob(1, 1, 2, 1000);
  job.fault_tolerance.stall_s = 2;
  const int64_t id = cluster().Submit(std::move(job), SampleText(60'000)).value();
  ASSERT_TRUE(cluster().RunUntil(id, 3).ok());
  const pid_t executor = ExecutorOf(1);
  ASSERT_EQ(::kill(executor, SIGSTOP), 0);
  const auto ended = client().Wait(id, kStallAndRecoverMs);
  ASSERT_TRUE(ended.has_value()) << ended.error();
  EXPECT_EQ(ended->state, JobState::kSucceeded) << ended->message;
  EXPECT_NE(ExecutorOf(1), executor);
  const std::string log = ReadFile(fmt::format("{}/jobs/{}/job.log", cluster().state_dir(), id))
                              .value_or("there is no log");
  EXPECT_THAT(log, AllOf(HasSubstr(" s: rank 1 (worker 'w1', device 0) "),
                         HasSubstr("1 rank waits for it: rank 0 (worker 'w0', device 0) at "
                                   "instruction "),
                         HasSubstr(" from rank 1) of step "), HasSubstr("its process is stopped"),
                         HasSubstr("recovering: nothing has moved for ")));
}

TEST_F(ExecutorsOfWorkers, AJobThatRecoversGoesOnInAnotherOne) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2, 400, true);
  const pid_t executor = ExecutorOf(1);
  ASSERT_EQ(::kill(executor, SIGKILL), 0);
  const client::JobInfo ended = EndOf(id);
  EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
  EXPECT_NE(ExecutorOf(1), executor);
}

TEST_F(ExecutorsOfWorkers, EndWithTheirSupervisor) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const int64_t id = StartJob(1, 1);
  // The one of the job, and the next, which is started ahead.
  ASSERT_TRUE(WaitUntil([] { return Executors(false).size() == 2; }, kSoonMs));
  Kill(cluster().worker(0));
  EXPECT_TRUE(WaitUntil([] { return Executors(false).empty(); }, kSoonMs));
  EXPECT_EQ(EndOf(id).reason, "WorkerLost");
}

TEST_F(ExecutorsOfWorkers, OneThatDoesNotLetGoIsKilledAndItsDevicesAreFree) {
  ProcessClusterOptions options;
  options.workers = 2;
  options.worker_args = {"--executor-end-s", "1"};
  ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
  const int64_t id = StartJob(1, 2);
  ASSERT_EQ(::kill(ExecutorOf(1), SIGSTOP), 0);
  const Status cancelled = client().Cancel(id);
  ASSERT_TRUE(cancelled.ok()) << cancelled;
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  EXPECT_THAT(Log(1), HasSubstr("has not let go of mesh"));
  ExpectAllReady(2);
  ExpectAJobSucceeds(1, 2);
}

TEST_F(ExecutorsOfWorkers, ASpareThatDiesIsReapedAndMissedByNobody) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  ASSERT_TRUE(WaitUntil([] { return Executors(false).size() == 1; }, kSoonMs));
  ASSERT_EQ(::kill(*Executors(false).begin(), SIGKILL), 0);
  ASSERT_TRUE(
      WaitUntil([] { return Executors(false).empty() && Executors(true).empty(); }, kSoonMs));
  ExpectAJobSucceeds(1, 1);
}

}  // namespace
}  // namespace meshwright::testing
