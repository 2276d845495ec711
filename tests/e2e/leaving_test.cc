// Jobs and workers that leave well, with processes: nothing that was done is lost, and the weights
// at the end are those of a run that nobody disturbed, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"
#include "tests/e2e/weights.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;

// Long enough that something can happen in the middle.
constexpr int64_t kLeavingSteps = 800;

class Leaving : public FaultFixture {
 protected:
  void StartWith(int workers) {
    ProcessClusterOptions options;
    options.workers = workers;
    options.worker_args = {"--checkpoint-root", dir_.File("checkpoints")};
    ASSERT_NO_FATAL_FAILURE(FaultFixture::Start(options));
  }
  // Saved when it is asked for, and at no other time.
  static ir::JobRequest Job(int data, int64_t steps = kLeavingSteps) {
    ir::JobRequest job = ByteJob(data, 1, 1, steps);
    job.checkpoint.enable = true;
    job.checkpoint.interval = 0;
    return job;
  }
  int64_t Submit(const ir::JobRequest& job) {
    const auto id = cluster().Submit(job, text_);
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  client::JobInfo InfoOf(int64_t id) { return client().Get(id).value(); }
  static std::string ModelOf(const client::JobInfo& job) {
    return ReadFile(job.directory + "/model.safetensors").value_or("");
  }
  // Kept in no folder: it moves by what is in the memory of workers.
  static ir::JobRequest Unsaved(int data) {
    ir::JobRequest job = Job(data);
    job.checkpoint.enable = false;
    return job;
  }
  // The weights of an undisturbed run.
  std::string Undisturbed(ir::JobRequest job) {
    job.checkpoint.enable = false;
    const client::JobInfo ended = client().Wait(Submit(job), 120'000).value();
    EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
    EXPECT_TRUE(WaitUntil([&] { return AllFree(); }, kSoonMs)) << "the job holds devices";
    return ModelOf(ended);
  }
  bool AllFree() {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    return std::all_of(workers.begin(), workers.end(),
                       [](const client::WorkerInfo& worker) { return worker.busy_devices == 0; });
  }
  std::string StateOf(const std::string& name) {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    for (const client::WorkerInfo& worker : workers) {
      if (worker.name == name) return worker.state;
    }
    return "";
  }
  // One whose devices the only job has.
  std::string WorkerOfTheJob() {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    for (const client::WorkerInfo& worker : workers) {
      if (worker.busy_devices > 0) return worker.name;
    }
    ADD_FAILURE() << "no worker works for the job";
    return "w0";
  }
  ProcessOutput Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    return RunMeshwright(args, {}, 120'000).value();
  }
  std::string LogsOf(int64_t id) {
    std::string all;
    const std::vector<std::string> lines = client().Logs(id).value();
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  // Every step was told once, and the weights are those.
  void ExpectEndsWith(int64_t id, const std::string& weights) {
    const auto followed = cluster().Follow(id);
    ASSERT_TRUE(followed.has_value()) << followed.error();
    ASSERT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message;
    ASSERT_EQ(static_cast<int64_t>(followed->steps.size()), followed->info.steps);
    for (size_t i = 0; i < followed->steps.size(); ++i) {
      ASSERT_EQ(followed->steps[i].step, static_cast<int64_t>(i));
    }
    EXPECT_EQ(ModelOf(followed->info), weights) << "not the weights of the undisturbed run";
  }
  // A worker of it is told to stop.
  void ExpectMovedByMemory(const ir::JobRequest& job) {
    const std::string expected = Undisturbed(job);
    const int64_t id = Submit(job);
    ASSERT_TRUE(cluster().RunUntil(id, 150).ok());
    Subprocess& worker = cluster().worker(std::stoi(WorkerOfTheJob().substr(1)));
    ASSERT_TRUE(worker.Signal(SIGTERM).ok());
    const auto exit = worker.Wait(60'000);
    ASSERT_TRUE(exit.has_value()) << exit.error();
    EXPECT_TRUE(exit->ok()) << exit->ToString();
    ASSERT_NO_FATAL_FAILURE(ExpectEndsWith(id, expected));
    const std::string logs = LogsOf(id);
    EXPECT_THAT(logs, HasSubstr("goes on from the snapshot of step"));
    EXPECT_THAT(logs, HasSubstr(", 0 steps are run again"));
    EXPECT_THAT(logs, ::testing::Not(HasSubstr("recovering")));
  }

  const std::string text_ = SampleText(60'000);
};

TEST_F(Leaving, APausedJobGoesOnBitForBit) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  const std::string expected = Undisturbed(Job(2));
  const int64_t id = Submit(Job(2));
  const std::string name = std::to_string(id);
  ASSERT_TRUE(cluster().RunUntil(id, 150).ok());
  const ProcessOutput paused = Run({"pause", name});
  EXPECT_EQ(paused.exit.code, 0) << paused.stderr_text;
  EXPECT_THAT(paused.stdout_text, HasSubstr("job " + name + " is paused after step "));
  const client::JobInfo info = InfoOf(id);
  EXPECT_EQ(info.state, JobState::kPaused);
  EXPECT_EQ(info.checkpoint_step, info.steps_done);
  EXPECT_TRUE(WaitUntil([&] { return AllFree(); }, kSoonMs)) << "a paused job holds devices";
  EXPECT_THAT(Run({"checkpoint", "ls", name}).stdout_text, HasSubstr("pause"));

  // Others get its devices, and it outlives the controller.
  ASSERT_NO_FATAL_FAILURE(ExpectAJobSucceeds(2, 1));
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  ASSERT_TRUE(cluster().WaitReady(2).ok());
  EXPECT_EQ(InfoOf(id).state, JobState::kPaused);
  const ProcessOutput resumed = Run({"resume", name});
  EXPECT_EQ(resumed.exit.code, 0) << resumed.stderr_text;
  const client::JobInfo ended = client().Wait(id, 120'000).value();
  ASSERT_EQ(ended.state, JobState::kSucceeded) << ended.message;
  EXPECT_EQ(ModelOf(ended), expected);
  const ProcessOutput refused = Run({"resume", name});
  EXPECT_NE(refused.exit.code, 0);
  EXPECT_THAT(refused.stderr_text, HasSubstr("only a paused job can be resumed"));
}

TEST_F(Leaving, WithoutCheckpointsAPauseIsRefusedWithTheFix) {
  ASSERT_NO_FATAL_FAILURE(StartWith(1));
  ir::JobRequest job = Job(1, kForeverSteps);
  job.checkpoint.enable = false;
  const int64_t id = Submit(job);
  ASSERT_TRUE(cluster().RunUntil(id, 5).ok());
  const ProcessOutput refused = Run({"pause", std::to_string(id)});
  EXPECT_NE(refused.exit.code, 0);
  EXPECT_THAT(refused.stderr_text, HasSubstr("checkpoint.enable=true"));
  EXPECT_TRUE(client().Cancel(id).ok());
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
}

TEST_F(Leaving, ACancelledJobIsSavedAndGoesOnAsAnother) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  const std::string expected = Undisturbed(Job(2));
  const int64_t id = Submit(Job(2));
  ASSERT_TRUE(cluster().RunUntil(id, 150).ok());
  ASSERT_TRUE(client().Cancel(id).ok());
  const client::JobInfo ended = EndOf(id);
  EXPECT_EQ(ended.state, JobState::kCancelled);
  EXPECT_EQ(ended.checkpoint_step, ended.steps_done);
  EXPECT_THAT(Run({"checkpoint", "ls", std::to_string(id)}).stdout_text, HasSubstr("cancel"));
  const ProcessOutput resumed = Run({"submit", "--resume", std::to_string(id), "-q"});
  EXPECT_EQ(resumed.exit.code, 0) << resumed.stdout_text << resumed.stderr_text;
  EXPECT_EQ(ModelOf(InfoOf(id + 1)), expected);
}

TEST_F(Leaving, ADrainedWorkersJobGoesOnElsewhereAndNoStepIsLost) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  const std::string expected = Undisturbed(Job(2));
  const int64_t id = Submit(Job(2));
  ASSERT_TRUE(cluster().RunUntil(id, 150).ok());
  const std::string name = WorkerOfTheJob();
  const ProcessOutput drained = Run({"worker", "drain", name});
  EXPECT_EQ(drained.exit.code, 0) << drained.stderr_text;
  EXPECT_THAT(drained.stdout_text, HasSubstr("is drained"));
  EXPECT_THAT(Run({"status"}).stdout_text, HasSubstr("DRAINED"));
  ASSERT_NO_FATAL_FAILURE(ExpectEndsWith(id, expected));
  EXPECT_THAT(LogsOf(id), HasSubstr(", 0 steps are run again"));
  EXPECT_EQ(Run({"worker", "uncordon", name}).exit.code, 0);
  EXPECT_THAT(Run({"status"}).stdout_text, ::testing::Not(HasSubstr("DRAINED")));
}

TEST_F(Leaving, AWorkerThatGetsSigtermHasItsJobMovedAndEndsWithZero) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  const std::string expected = Undisturbed(Job(2));
  const int64_t id = Submit(Job(2));
  ASSERT_TRUE(cluster().RunUntil(id, 150).ok());
  Subprocess& worker = cluster().worker(std::stoi(WorkerOfTheJob().substr(1)));
  ASSERT_TRUE(worker.Signal(SIGTERM).ok());
  const auto exit = worker.Wait(60'000);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_TRUE(exit->ok()) << exit->ToString();
  ASSERT_NO_FATAL_FAILURE(ExpectEndsWith(id, expected));
  EXPECT_THAT(LogsOf(id), HasSubstr(", 0 steps are run again"));
}

TEST_F(Leaving, AJobWithoutCheckpointsMovesByTheMemoryOfWorkers) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  ExpectMovedByMemory(Unsaved(2));
}

TEST_F(Leaving, AJobOfOneWorkerMovesByTheMemoryOfTheWorkerThatGoes) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  ir::JobRequest job = Unsaved(1);
  job.fault_tolerance.copies = 0;
  ExpectMovedByMemory(job);
}

TEST_F(Leaving, APauseThatWasAcceptedOutlivesTheController) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  const int64_t id = Submit(Job(2, kForeverSteps));
  ASSERT_TRUE(cluster().RunUntil(id, 100).ok());
  ASSERT_TRUE(client().Pause(id).ok());
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  ASSERT_TRUE(WaitUntil([&] { return InfoOf(id).state == JobState::kPaused; }, kSoonMs))
      << LogsOf(id);
  EXPECT_EQ(InfoOf(id).checkpoint_step, InfoOf(id).steps_done);
  EXPECT_TRUE(client().Cancel(id).ok());
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
}

TEST_F(Leaving, ASecondSignalEndsAWorkerAtOnce) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  const int64_t id = Submit(Job(1, kForeverSteps));
  ASSERT_TRUE(cluster().RunUntil(id, 5).ok());
  Subprocess& worker = cluster().worker(std::stoi(WorkerOfTheJob().substr(1)));
  ASSERT_TRUE(worker.Signal(SIGTERM).ok());
  ASSERT_TRUE(worker.Signal(SIGINT).ok());
  const auto exit = worker.Wait(kSoonMs);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_TRUE(exit->ok()) << exit->ToString();
  EXPECT_TRUE(client().Cancel(id).ok());
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
}

TEST_F(Leaving, ACordonedWorkerGetsNoJobAlsoAfterARestartOfTheController) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  EXPECT_EQ(Run({"worker", "cordon", "nobody"}).exit.code, 2);
  ASSERT_EQ(Run({"worker", "cordon", "w0"}).exit.code, 0);
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  ASSERT_TRUE(
      WaitUntil([&] { return StateOf("w0") == "CORDONED" && StateOf("w1") == "READY"; }, kSoonMs));
  const int64_t id = Submit(Job(1, kForeverSteps));
  ASSERT_TRUE(cluster().RunUntil(id, 5).ok());
  EXPECT_EQ(WorkerOfTheJob(), "w1");
  EXPECT_TRUE(client().Cancel(id).ok());
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
}

}  // namespace
}  // namespace meshwright::testing
