// Checkpoints and recovery with processes: workers are killed, jobs go on with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Long enough that a worker can be killed in the middle.
constexpr int64_t kSteps = 1200;

class Checkpoints : public FaultFixture {
 protected:
  void StartWith(int workers) {
    ProcessClusterOptions options;
    options.workers = workers;
    options.worker_args = {"--checkpoint-root", root()};
    ASSERT_NO_FATAL_FAILURE(FaultFixture::Start(options));
  }
  std::string root() const { return dir_.File("checkpoints"); }

  static ir::JobRequest Job(int data, int tensor = 1) {
    ir::JobRequest job = ByteJob(data, tensor, 1, kSteps);
    job.checkpoint.enable = true;
    job.checkpoint.interval = 150;
    job.checkpoint.keep_latest_k = 3;
    return job;
  }
  int64_t Submit(const ir::JobRequest& job) {
    const auto id = cluster().Submit(job, text_);
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  std::string ModelOf(const client::JobInfo& job) {
    return ReadFile(job.directory + "/model.safetensors").value_or("");
  }
  bool AllFree() {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    return std::all_of(workers.begin(), workers.end(),
                       [](const client::WorkerInfo& worker) { return worker.busy_devices == 0; });
  }
  // The weights of an undisturbed run.
  std::string Undisturbed(ir::JobRequest job) {
    job.checkpoint.enable = false;
    const client::JobInfo ended = client().Wait(Submit(job), 120'000).value();
    EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
    EXPECT_TRUE(WaitUntil([&] { return AllFree(); }, kSoonMs)) << "the job holds devices";
    return ModelOf(ended);
  }
  // Kills a worker whose devices the only job has.
  void KillOneOfTheJob() {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    for (const client::WorkerInfo& worker : workers) {
      if (worker.state != "READY" || worker.busy_devices == 0) continue;
      return Kill(cluster().worker(std::stoi(worker.name.substr(1))));
    }
    FAIL() << "no worker works for the job";
  }
  // Every step was told, once and in order.
  static void ExpectEveryStepOnce(const std::vector<client::StepMetrics>& steps, int64_t count) {
    ASSERT_EQ(static_cast<int64_t>(steps.size()), count);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(steps[static_cast<size_t>(i)].step, i);
  }
  std::string LogsOf(int64_t id) {
    std::string all;
    const std::vector<std::string> lines = client().Logs(id).value();
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  ProcessOutput Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    return RunMeshwright(args, {}, 120'000).value();
  }

  const std::string text_ = SampleText(60'000);
};

TEST_F(Checkpoints, AJobThatWasKilledIsResumedBitForBit) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  const std::string expected = Undisturbed(Job(2));
  ir::JobRequest job = Job(2);
  job.fault_tolerance.enable = false;
  const int64_t id = Submit(job);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  // A save takes the time that the disk takes, whatever the steps do meanwhile.
  ASSERT_TRUE(WaitUntil([&] { return client().Get(id).value().checkpoint_step >= 150; }, kSoonMs));
  KillOneOfTheJob();
  const client::JobInfo failed = EndOf(id);
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_EQ(failed.reason, "WorkerLost") << failed.message;
  EXPECT_GE(failed.checkpoint_step, 150);

  const ProcessOutput verified = Run({"checkpoint", "verify", std::to_string(id)});
  EXPECT_EQ(verified.exit.code, 0) << verified.stderr_text;
  EXPECT_THAT(verified.stdout_text, HasSubstr("is whole"));
  const ProcessOutput resumed = Run({"submit", "--resume", std::to_string(id), "-q"});
  EXPECT_EQ(resumed.exit.code, 0) << resumed.stdout_text << resumed.stderr_text;
  EXPECT_THAT(resumed.stdout_text, HasSubstr("goes on  from step"));
  const client::JobInfo ended = client().Get(id + 1).value();
  EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
  EXPECT_EQ(ModelOf(ended), expected) << "the weights differ from those of the undisturbed run";

  // What the last checkpoint has are these weights, and the folder holds no more than was asked.
  const std::string file = dir_.File("exported.safetensors");
  EXPECT_EQ(Run({"checkpoint", "export", std::to_string(id), file}).exit.code, 0);
  EXPECT_EQ(ReadFile(file).value_or(""), expected);
  const ProcessOutput listed = Run({"checkpoint", "ls", std::to_string(id), "-o", "json"});
  EXPECT_EQ(std::count(listed.stdout_text.begin(), listed.stdout_text.end(), '\n'), 3)
      << listed.stdout_text;
}

TEST_F(Checkpoints, AJobThatMayNotRecoverIsSavedFromMemoryBeforeItEnds) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  ir::JobRequest job = Job(2);
  job.checkpoint.interval = kSteps;
  const std::string expected = Undisturbed(job);
  job.fault_tolerance.max_recoveries = 0;
  job.fault_tolerance.snapshot_every = 1;
  const int64_t id = Submit(job);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  KillOneOfTheJob();
  const client::JobInfo failed = EndOf(id);
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_EQ(failed.reason, "WorkerLost") << failed.message;
  EXPECT_THAT(failed.message, HasSubstr("is saved: 'meshwright submit --resume")) << LogsOf(id);
  EXPECT_GE(failed.checkpoint_step, 390);

  const ProcessOutput resumed = Run({"submit", "--resume", std::to_string(id), "-q"});
  EXPECT_EQ(resumed.exit.code, 0) << resumed.stdout_text << resumed.stderr_text;
  EXPECT_EQ(ModelOf(client().Get(id + 1).value()), expected);
}

TEST_F(Checkpoints, AJobGoesOnByItselfWhenItsWorkersAreKilled) {
  ASSERT_NO_FATAL_FAILURE(StartWith(4));
  const std::string expected = Undisturbed(Job(2));
  const int64_t id = Submit(Job(2));
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  KillOneOfTheJob();
  ASSERT_TRUE(cluster().RunUntil(id, 700).ok());
  KillOneOfTheJob();
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  EXPECT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message;
  ExpectEveryStepOnce(followed->steps, kSteps);
  EXPECT_EQ(ModelOf(followed->info), expected);
  EXPECT_THAT(LogsOf(id), HasSubstr("recovered in"));
}

TEST_F(Checkpoints, WithoutCheckpointsItBeginsAgainAndEndsWithTheSameBits) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  ir::JobRequest job = Job(2);
  job.checkpoint.enable = false;
  const std::string expected = Undisturbed(job);
  const int64_t id = Submit(job);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  KillOneOfTheJob();
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  EXPECT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message;
  ExpectEveryStepOnce(followed->steps, kSteps);
  EXPECT_EQ(ModelOf(followed->info), expected);
}

TEST_F(Checkpoints, WithoutASpareItGoesOnWithFewerReplicas) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  Undisturbed(Job(2));  // the cluster is fine
  ir::JobRequest job = Job(2);
  job.fault_tolerance.max_wait_for_spare_s = 0;
  const int64_t id = Submit(job);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  KillOneOfTheJob();
  const auto followed = cluster().Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  EXPECT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message;
  EXPECT_THAT(followed->info.layout, HasSubstr("data=1"));
  ExpectEveryStepOnce(followed->steps, kSteps);
}

TEST_F(Checkpoints, ARootThatWorkersDoNotHaveIsNamedAndTheJobGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  ir::JobRequest job = Job(1);
  job.train.steps = 300;
  job.checkpoint.folder.root = "fast";
  const int64_t id = Submit(job);
  const client::JobInfo ended = client().Wait(id, 60'000).value();
  EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
  EXPECT_EQ(ended.checkpoint_step, -1);
  EXPECT_THAT(LogsOf(id), HasSubstr("start the worker with --checkpoint-root"));
  const ProcessOutput resumed = Run({"submit", "--resume", std::to_string(id)});
  EXPECT_NE(resumed.exit.code, 0);
  EXPECT_THAT(resumed.stderr_text, HasSubstr("has no checkpoint to go on from"));
  EXPECT_THAT(Run({"checkpoint", "ls", std::to_string(id)}).stderr_text,
              HasSubstr("it ended before the first one was written"));
}

TEST_F(Checkpoints, ADamagedCheckpointIsRefusedByName) {
  ASSERT_NO_FATAL_FAILURE(StartWith(1));
  ir::JobRequest job = Job(1);
  job.train.steps = 300;
  job.checkpoint.folder.path = "mine";
  const int64_t id = Submit(job);
  ASSERT_EQ(client().Wait(id, 60'000)->state, JobState::kSucceeded);
  const std::string shard =
      root() + "/mine/step-00000300/sharded/shard-00001-model-00001-of-00001.safetensors";
  std::string bytes = ReadFile(shard).value();
  bytes.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomic(shard, bytes).ok());
  EXPECT_EQ(Run({"checkpoint", "verify", root() + "/mine"}).exit.code, 1);
  const ProcessOutput resumed =
      Run({"submit", "--resume", std::to_string(id), "--set", "training.steps=400"});
  EXPECT_EQ(resumed.exit.code, 2) << "it was not made from a job file";
  const ProcessOutput again = Run({"submit", "--from", root() + "/mine"});
  EXPECT_EQ(again.exit.code, 1) << again.stdout_text;
  EXPECT_THAT(again.stdout_text + again.stderr_text, HasSubstr("are not those that were written"));
  // An older one is taken only when it is said.
  EXPECT_EQ(Run({"submit", "--from", root() + "/mine", "--step", "150", "-q"}).exit.code, 0);
}

}  // namespace
}  // namespace meshwright::testing
