// Orderly ends: SIGTERM of each part and `meshwright down`, in the middle of a training.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Shutdown : public FaultFixture {
 protected:
  // Runs `meshwright COMMAND --dir <run_dir_>` to its end; its standard output.
  std::string Run(const std::string& command, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {command, "--dir", run_dir_};
    args.insert(args.end(), more.begin(), more.end());
    // What the daemons' folders for temporary files hold at the end was left behind.
    const auto run = RunMeshwright(args, {{"TMPDIR", temp_dir_}});
    EXPECT_TRUE(run.has_value()) << run.error();
    if (!run.has_value()) return "";
    EXPECT_EQ(run->exit.code, 0) << run->stderr_text;
    return run->stdout_text;
  }

  // The process that a keeper of `up` looks after; 0: none at this moment.
  static pid_t KeptBy(pid_t keeper) {
    const std::string file = fmt::format("/proc/{0}/task/{0}/children", keeper);
    const std::string children = ReadFile(file).value_or("");
    return children.empty() ? 0 : std::stoi(children);
  }

  // `up`, with a job that trains on all workers until it is stopped.
  void UpWithATrainingJob() {
    ASSERT_TRUE(MakeDirs(temp_dir_).ok());
    Run("up", {"--workers", "3", "--port", "0", "--metrics-port", "0"});
    for (const std::string& line : Split(ReadFile(run_dir_ + "/cluster.txt").value_or(""), '\n')) {
      const std::vector<std::string> words = Split(line, ' ');
      if (words[0] == "address") address_ = words.at(1);
      if (words[0] == "process") pids_.push_back(std::stoi(words.at(2)));
    }
    ASSERT_EQ(pids_.size(), 4u) << "a controller and three workers";
    const std::string data = Write("data.txt", SampleText(60'000));
    const std::string job = Write("job.toml", JobFile(data, 1, 3, kForeverSteps));
    const auto submitted = RunMeshwright({"--address", address_, "submit", "--no-wait", job});
    ASSERT_TRUE(submitted.has_value()) << submitted.error();
    ASSERT_EQ(submitted->exit.code, 0) << submitted->stderr_text;
    const auto runs = [&] {
      const auto jobs = RunMeshwright({"--address", address_, "jobs"});
      return jobs.has_value() && jobs->stdout_text.find("RUNNING") != std::string::npos;
    };
    ASSERT_TRUE(WaitUntil(runs, kSoonMs));
    ASSERT_TRUE(WaitUntil([&] { return !HoldingsOfWorker(KeptBy(pids_[1])).shared_memory.empty(); },
                          kSoonMs));
    leftovers_.Note();
    ASSERT_GT(leftovers_.noted(), 0u);
  }

  void ExpectNothingLeft() {
    EXPECT_EQ(leftovers_.Find(kSoonMs), "");
    EXPECT_TRUE(std::filesystem::is_empty(temp_dir_));
  }

  const std::string run_dir_ = dir_.File("run");
  const std::string temp_dir_ = dir_.File("daemon-tmp");
  std::string address_;
  std::vector<pid_t> pids_;  // the controller first
};

TEST_F(Shutdown, StoppedWorkerFailsItsJobAndLeavesTheRestAtWork) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(3));
  const int64_t id = StartJob(1, 3);
  ASSERT_TRUE(cluster().worker(1).Signal(SIGTERM).ok());
  const auto exit = cluster().worker(1).Wait(kSoonMs);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_TRUE(exit->ok()) << exit->ToString();
  const client::JobInfo ended = EndOf(id);
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ended.reason, "WorkerStopped") << ended.message;
  EXPECT_THAT(ended.message, HasSubstr(ProcessCluster::WorkerName(1)));
  for (const int survivor : {0, 2}) ExpectHoldsNothingOfAJob(survivor);
  ExpectAJobSucceeds(1, 2);
}

TEST_F(Shutdown, StoppedControllerEndsItsJobAndKeepsItsHistory) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  ASSERT_TRUE(cluster().controller().Signal(SIGTERM).ok());
  const auto exit = cluster().controller().Wait(kSoonMs);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_TRUE(exit->ok()) << exit->ToString();
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  const Status restarted = cluster().RestartController();
  ASSERT_TRUE(restarted.ok()) << restarted;
  const auto info = client().Get(id);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, JobState::kFailed);
  EXPECT_EQ(info->reason, "ControllerStopped") << info->message;
  EXPECT_THAT(info->message, HasSubstr("submit the job again"));
  const Status ready = cluster().WaitReady(2);
  ASSERT_TRUE(ready.ok()) << ready;
  ExpectAJobSucceeds(1, 2);
}

TEST_F(Shutdown, DownStopsATrainingClusterAndLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(UpWithATrainingJob());
  const std::string report = Run("down");
  EXPECT_THAT(report, AllOf(HasSubstr("controller"), HasSubstr("worker-0"), HasSubstr("worker-2"),
                            HasSubstr("stopped")));
  EXPECT_THAT(report, Not(HasSubstr("killed")));
  ExpectNothingLeft();
  EXPECT_FALSE(FileExists(run_dir_ + "/cluster.txt"));
  EXPECT_THAT(Run("down"), HasSubstr("nothing runs"));
}

TEST_F(Shutdown, SigtermToEveryProcessOfUpLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(UpWithATrainingJob());
  for (const pid_t pid : pids_) ASSERT_EQ(::kill(pid, SIGTERM), 0);
  ExpectNothingLeft();
  EXPECT_EQ(Run("down"), "") << "there was nothing to stop";
  EXPECT_FALSE(FileExists(run_dir_ + "/cluster.txt"));
}

TEST_F(Shutdown, DownAfterAKilledControllerStopsTheWorkers) {
  ASSERT_NO_FATAL_FAILURE(UpWithATrainingJob());
  ASSERT_EQ(::kill(pids_[0], SIGKILL), 0);
  EXPECT_THAT(Run("down"), AllOf(HasSubstr("worker-1"), Not(HasSubstr("killed"))));
  ExpectNothingLeft();
}

TEST_F(Shutdown, KilledProcessesOfUpComeBack) {
  ASSERT_NO_FATAL_FAILURE(UpWithATrainingJob());
  const auto ready = [&] {
    const auto status = RunMeshwright({"--address", address_, "status"});
    return status.has_value() && status->stdout_text.find("3 ready of 3") != std::string::npos;
  };
  for (const size_t killed : {2, 0}) {
    const pid_t pid = KeptBy(pids_[killed]);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_TRUE(WaitUntil([&] { return KeptBy(pids_[killed]) != pid && KeptBy(pids_[killed]) > 0; },
                          kSoonMs));
    EXPECT_TRUE(WaitUntil(ready, kSoonMs)) << "at the same address: " << address_;
  }
  EXPECT_THAT(ReadFile(run_dir_ + "/worker-1.log").value_or(""), HasSubstr("killed by signal 9"));
  EXPECT_THAT(Run("down"), AllOf(HasSubstr("worker-1"), Not(HasSubstr("killed"))));
  ExpectNothingLeft();
}

TEST_F(Shutdown, UpRefusesASecondClusterInItsFolderAndDisturbsNothing) {
  ASSERT_NO_FATAL_FAILURE(UpWithATrainingJob());
  const Failure failure = Fails({"up", "--dir", run_dir_, "--port", "0", "--metrics-port", "0"});
  EXPECT_THAT(failure.text, HasSubstr("meshwright down --dir " + run_dir_));
  const auto jobs = RunMeshwright({"--address", address_, "jobs"});
  ASSERT_TRUE(jobs.has_value()) << jobs.error();
  EXPECT_THAT(jobs->stdout_text, HasSubstr("RUNNING"));
  Run("down");
  ExpectNothingLeft();
}

// Workers that measure take seconds, each in its turn.
TEST_F(Shutdown, DownEndsAnUpThatStillStarts) {
  const std::string log = dir_.File("up.log");
  const auto up = Launch({"up", "--dir", run_dir_, "--workers", "3", "--profile", "measure",
                          "--port", "0", "--metrics-port", "0"},
                         log);
  ASSERT_NE(up, nullptr);
  const auto starts = [&] {
    return ReadFile(run_dir_ + "/cluster.txt").value_or("").find("worker-0") != std::string::npos;
  };
  ASSERT_TRUE(WaitUntil(starts, kSoonMs));
  leftovers_.Note();
  EXPECT_THAT(Run("down"), HasSubstr("was starting it and is told to end"));
  const auto exit = up->Wait(kSoonMs);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_EQ(exit->code, 130) << ReadFile(log).value_or("");
  EXPECT_FALSE(FileExists(run_dir_ + "/cluster.txt"));
}

}  // namespace
}  // namespace meshwright::testing
