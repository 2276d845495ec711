// The death of each part while a job runs: one clear cause, soon, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;

class Faults : public FaultFixture {
 protected:
  std::string Log(const std::string& name) const {
    return ReadFile(cluster_->File(name)).value_or("");
  }
};

TEST_F(Faults, KilledWorkerFailsTheJobWithItsNameAndFreesTheRest) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(4));
  const int64_t id = StartJob(2, 2);
  EXPECT_FALSE(HoldingsOfWorker(cluster().worker(0).pid()).shared_memory.empty())
      << "the job should have used shared memory";
  Kill(cluster().worker(2));
  const client::JobInfo ended = EndOf(id);
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ended.reason, "WorkerLost") << ended.message;
  EXPECT_THAT(ended.message, HasSubstr(ProcessCluster::WorkerName(2)));
  for (const int survivor : {0, 1, 3}) ExpectHoldsNothingOfAJob(survivor);
  ExpectAJobSucceeds(1, 2);
}

TEST_F(Faults, CancelledJobEndsAndItsDevicesAreFree) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  const Status cancelled = client().Cancel(id);
  ASSERT_TRUE(cancelled.ok()) << cancelled;
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  ExpectAJobSucceeds(2, 1);
}

TEST_F(Faults, WorkersOfAKilledControllerGoOnAndItTakesTheJobUp) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  const auto follower = Launch({"--address", cluster().address(), "logs", "-f", std::to_string(id)},
                               cluster().File("logs.log"));
  ASSERT_NE(follower, nullptr);
  ASSERT_TRUE(WaitUntil([&] { return !Log("logs.log").empty(); }, kSoonMs)) << "it follows";
  Kill(cluster().controller());
  const auto orphan = client().Get(id);
  ASSERT_FALSE(orphan.has_value());
  EXPECT_EQ(orphan.error().code(), StatusCode::kUnavailable);
  ASSERT_NO_FATAL_FAILURE(RestartController());
  const auto info = client().Get(id);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, JobState::kRunning);
  const Status goes_on = cluster().RunUntil(id, info->steps_done + 10);
  ASSERT_TRUE(goes_on.ok()) << goes_on;
  ASSERT_TRUE(client().Cancel(id).ok());
  const auto end = follower->Wait(kSoonMs);
  ASSERT_TRUE(end.has_value()) << end.error();
  EXPECT_THAT(Log("logs.log"), HasSubstr("CANCELLED"));
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  ExpectAJobSucceeds(1, 2);
}

TEST_F(Faults, WorkersOfAControllerThatIsGoneForGoodEndOnSigterm) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  StartJob(2, 1);
  Kill(cluster().controller());
  EXPECT_TRUE(
      WaitUntil([&] { return Log("w0.log").find("trying again") != std::string::npos; }, kSoonMs))
      << Log("w0.log");
  EXPECT_THAT(Log("w0.log"), HasSubstr(cluster().address()));
  // TearDown ends both workers: with 0, in time, and with an empty temporary folder.
}

TEST_F(Faults, KilledClientDoesNotStopItsJobAndAnotherOneFollowsIt) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string data = Write("text.txt", SampleText(60'000));
  const std::string job = Write("job.toml", JobFile(data, 1, 2, 600));
  const auto submit =
      Launch({"--address", cluster().address(), "submit", job}, cluster().File("submit.log"));
  ASSERT_NE(submit, nullptr);
  ASSERT_TRUE(
      WaitUntil([&] { return Log("submit.log").find("step:") != std::string::npos; }, kSoonMs))
      << Log("submit.log");
  leftovers_.Note();
  ASSERT_TRUE(submit->Signal(SIGKILL).ok());
  ASSERT_TRUE(submit->Wait(kSoonMs).has_value());
  const auto running = client().Get(1);
  ASSERT_TRUE(running.has_value()) << running.error();
  ASSERT_EQ(running->state, JobState::kRunning) << running->message;
  const auto logs = RunMeshwright({"--address", cluster().address(), "logs", "-f", "1"});
  ASSERT_TRUE(logs.has_value()) << logs.error();
  EXPECT_EQ(logs->exit.code, 0) << logs->stderr_text;
  EXPECT_THAT(logs->stdout_text, HasSubstr("SUCCEEDED after 600 steps"));
  const client::JobInfo ended = EndOf(1);
  EXPECT_EQ(ended.state, JobState::kSucceeded);
  EXPECT_TRUE(FileExists(ended.directory + "/model.safetensors"));
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
}

}  // namespace
}  // namespace meshwright::testing
