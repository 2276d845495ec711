// The controller dies, or is stopped, and the jobs go on: workers hold what they run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;
using ::testing::Not;

// Long enough that the controller can be killed in the middle.
constexpr int64_t kHeldSteps = 1200;

class ControllerDeath : public FaultFixture {
 protected:
  static ir::JobRequest HeldJob() {
    ir::JobRequest job = ByteJob(2, 1, 1, kHeldSteps);
    job.fault_tolerance.enable = false;  // nothing is to be recovered
    return job;
  }
  int64_t SubmitHeld(const ir::JobRequest& job) {
    const auto id = cluster().Submit(job, text_);
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  std::string ModelOf(const client::JobInfo& job) {
    return ReadFile(job.directory + "/model.safetensors").value_or("");
  }
  std::string WorkerLog(int worker) const {
    return ReadFile(cluster_->File(ProcessCluster::WorkerName(worker) + ".log")).value_or("");
  }
  // The process of the worker's last mesh.
  pid_t ExecutorOf(int worker) const {
    const std::string log = WorkerLog(worker);
    const std::string text = "runs in executor ";
    const size_t at = log.rfind(text);
    return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + text.size());
  }
  void ExpectDone(const ProcessCluster::Followed& followed, const std::string& weights) {
    EXPECT_EQ(followed.info.state, JobState::kSucceeded) << followed.info.message;
    ASSERT_EQ(static_cast<int64_t>(followed.steps.size()), kHeldSteps);
    for (int64_t i = 0; i < kHeldSteps; ++i) {
      ASSERT_EQ(followed.steps[static_cast<size_t>(i)].step, i);
    }
    EXPECT_EQ(ModelOf(followed.info), weights) << "other weights than without a disturbance";
  }
  std::string Undisturbed() {
    const client::JobInfo ended = client().Wait(SubmitHeld(HeldJob()), 120'000).value();
    EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
    return ModelOf(ended);
  }

  const std::string text_ = SampleText(60'000);
};

TEST_F(ControllerDeath, AJobGoesOnInItsExecutorsWithEveryStepToldOnceToWhoWatches) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string expected = Undisturbed();
  const int64_t id = SubmitHeld(HeldJob());
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  const auto watcher = Launch({"--address", cluster().address(), "logs", "-f", std::to_string(id)},
                              cluster().File("watch.log"));
  ASSERT_NE(watcher, nullptr);
  const auto watches = [&] { return !ReadFile(cluster().File("watch.log")).value_or("").empty(); };
  ASSERT_TRUE(WaitUntil(watches, kSoonMs));
  const pid_t executors[] = {ExecutorOf(0), ExecutorOf(1)};
  for (const int64_t steps : {600, 1200}) {
    Kill(cluster().controller());
    ASSERT_NO_FATAL_FAILURE(RestartController());
    ASSERT_TRUE(cluster().RunUntil(id, steps).ok());
  }
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  ExpectDone(*followed, expected);
  for (const int worker : {0, 1}) {
    EXPECT_EQ(ExecutorOf(worker), executors[worker]) << "the job was loaded again";
  }
  const auto end = watcher->Wait(kSoonMs);
  ASSERT_TRUE(end.has_value()) << end.error();
  EXPECT_EQ(end->code, 0);
  const std::string seen = ReadFile(cluster().File("watch.log")).value_or("");
  EXPECT_THAT(seen, HasSubstr("taken up by the restarted controller"));
  EXPECT_THAT(seen, HasSubstr("SUCCEEDED"));
}

// What the workers have done meanwhile, and its losses, are told by the controller that comes.
TEST_F(ControllerDeath, AStoppedOneLeavesItsJobsToTheNextOne) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  ir::JobRequest job = HeldJob();
  job.fault_tolerance.enable = true;
  const int64_t id = SubmitHeld(job);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  const pid_t executors[] = {ExecutorOf(0), ExecutorOf(1)};
  ASSERT_TRUE(cluster().controller().Signal(SIGTERM).ok());
  const auto exit = cluster().controller().Wait(kSoonMs);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_TRUE(exit->ok()) << exit->ToString();
  const Status restarted = cluster().RestartController();
  ASSERT_TRUE(restarted.ok()) << restarted;
  const client::JobInfo info = client().Wait(id, 120'000).value();
  EXPECT_EQ(info.state, JobState::kSucceeded) << info.message;
  for (const int worker : {0, 1}) EXPECT_EQ(ExecutorOf(worker), executors[worker]);
}

TEST_F(ControllerDeath, WhatIsDoneWithoutAControllerIsToldLater) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string expected = Undisturbed();
  ir::JobRequest job = HeldJob();
  job.train.steps_per_launch = 100;
  const int64_t id = SubmitHeld(job);
  ASSERT_TRUE(cluster().RunUntil(id, 300).ok());
  Kill(cluster().controller());
  EXPECT_TRUE(
      WaitUntil([&] { return WorkerLog(0).find("trying again") != std::string::npos; }, kSoonMs));
  ASSERT_NO_FATAL_FAILURE(RestartController());
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  ExpectDone(*followed, expected);
}

TEST_F(ControllerDeath, AJobWithoutAGraceTimeIsDroppedAndRecovers) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string expected = Undisturbed();
  ir::JobRequest job = HeldJob();
  job.fault_tolerance.enable = true;
  job.fault_tolerance.orphan_grace_s = 0;
  const int64_t id = SubmitHeld(job);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  ExpectDone(*followed, expected);
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
}

// The controller of an old copy of the state is refused by workers that have seen a newer one; they
// hold what they run until that one is back.
TEST_F(ControllerDeath, AnOldControllerCannotTakeTheWorkers) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string old = dir_.File("old-state");
  // The term of the first life, which the second one's is above.
  Kill(cluster().controller());
  ASSERT_EQ(std::system(("cp -r " + cluster().state_dir() + " " + old).c_str()), 0);
  ASSERT_NO_FATAL_FAILURE(RestartController());
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  ASSERT_TRUE(cluster().WaitReady(2).ok());
  const int64_t id = SubmitHeld(HeldJob());
  ASSERT_TRUE(cluster().RunUntil(id, 100).ok());
  const pid_t executor = ExecutorOf(0);
  Kill(cluster().controller());
  const std::string port = cluster().address().substr(cluster().address().rfind(':') + 1);
  const auto impostor =
      Launch({"controller", "--port", port, "--state-dir", old, "--metrics-port", "-1"},
             cluster().File("old.log"));
  ASSERT_NE(impostor, nullptr);
  EXPECT_TRUE(WaitUntil(
      [&] {
        return WorkerLog(0).find("of term") != std::string::npos &&
               WorkerLog(0).find("out of date") != std::string::npos;
      },
      kSoonMs))
      << WorkerLog(0);
  ASSERT_TRUE(impostor->Signal(SIGKILL).ok());
  ASSERT_TRUE(impostor->Wait(kSoonMs).has_value());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  EXPECT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message;
  EXPECT_EQ(ExecutorOf(0), executor);
}

TEST_F(ControllerDeath, AControllerThatStoodStillForLongBlamesNobody) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = SubmitHeld(HeldJob());
  ASSERT_TRUE(cluster().RunUntil(id, 100).ok());
  ASSERT_NO_FATAL_FAILURE(Freeze(cluster().controller()));
  // Until the workers have given up their sessions.
  EXPECT_TRUE(WaitUntil(
      [&] {
        return WorkerLog(0).find("session ended") != std::string::npos &&
               WorkerLog(1).find("session ended") != std::string::npos;
      },
      60'000));
  ASSERT_EQ(::kill(cluster().controller().pid(), SIGCONT), 0);
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  EXPECT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message;
  EXPECT_EQ(static_cast<int64_t>(followed->steps.size()), kHeldSteps);
}

}  // namespace
}  // namespace meshwright::testing
