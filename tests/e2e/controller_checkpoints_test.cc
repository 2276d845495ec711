// Checkpoints of workers that share no folder, with processes: they lie with the controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;

constexpr int64_t kFolderlessSteps = 1200;

class WithoutAFolder : public FaultFixture {
 protected:
  static ir::JobRequest Job(int data) {
    ir::JobRequest job = ByteJob(data, 1, 1, kFolderlessSteps);
    job.checkpoint.enable = true;
    job.checkpoint.interval = 150;
    job.checkpoint.keep_latest_k = 3;
    job.fault_tolerance.snapshot_every = 0;  // nothing but checkpoints to go on from
    return job;
  }
  int64_t Submit(const ir::JobRequest& job) {
    const auto id = cluster().Submit(job, text_);
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  client::JobInfo Ended(int64_t id) {
    const client::JobInfo info = client().Wait(id, 120'000).value();
    EXPECT_EQ(info.state, JobState::kSucceeded) << info.message << "\n" << LogsOf(id);
    return info;
  }
  static std::string ModelOf(const client::JobInfo& job) {
    return ReadFile(job.directory + "/model.safetensors").value_or("");
  }
  std::string Undisturbed(ir::JobRequest job) {
    job.checkpoint.enable = false;
    return ModelOf(Ended(Submit(job)));
  }
  std::string LogsOf(int64_t id) {
    std::string all;
    const std::vector<std::string> lines = client().Logs(id).value();
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  void KillAWorkerOfTheJob() {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    for (const client::WorkerInfo& worker : workers) {
      if (worker.state != "READY" || worker.busy_devices == 0) continue;
      return Kill(cluster().worker(std::stoi(worker.name.substr(1))));
    }
    FAIL() << "no worker works for the job";
  }
  ProcessOutput Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    return RunMeshwright(args, {}, 120'000).value();
  }
  void ExpectWhole(int64_t id) {
    const ProcessOutput verified = Run({"checkpoint", "verify", std::to_string(id)});
    EXPECT_EQ(verified.exit.code, 0) << verified.stderr_text;
    EXPECT_THAT(verified.stdout_text, HasSubstr("is whole"));
  }

  const std::string text_ = SampleText(60'000);
};

TEST_F(WithoutAFolder, AJobThatWasKilledIsResumedBitForBitAndLookedAt) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(3));
  const std::string expected = Undisturbed(Job(2));
  ir::JobRequest job = Job(2);
  job.fault_tolerance.enable = false;
  const int64_t id = Submit(job);
  const std::string name = std::to_string(id);
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  KillAWorkerOfTheJob();
  const client::JobInfo failed = EndOf(id);
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_GE(failed.checkpoint_step, 150) << LogsOf(id);
  EXPECT_EQ(failed.checkpoint_folder.root, "controller");
  EXPECT_THAT(LogsOf(id), HasSubstr("of the controller"));
  ExpectWhole(id);
  const ProcessOutput inspected = Run({"checkpoint", "inspect", name});
  EXPECT_THAT(inspected.stdout_text, HasSubstr("tensors, "));

  const ProcessOutput resumed = Run({"submit", "--resume", name, "-q"});
  EXPECT_EQ(resumed.exit.code, 0) << resumed.stdout_text << resumed.stderr_text;
  const client::JobInfo ended = client().Get(id + 1).value();
  EXPECT_EQ(ModelOf(ended), expected) << "the weights differ from those of the undisturbed run";

  const std::string file = dir_.File("exported.safetensors");
  EXPECT_EQ(Run({"checkpoint", "export", name, file}).exit.code, 0);
  EXPECT_EQ(ReadFile(file).value_or(""), expected);
  const auto steps = [&] {
    const std::string listed = Run({"checkpoint", "ls", name, "-o", "json"}).stdout_text;
    return std::count(listed.begin(), listed.end(), '\n');
  };
  EXPECT_EQ(steps(), 3);
  const std::string newest = std::to_string(kFolderlessSteps);
  EXPECT_EQ(Run({"checkpoint", "rm", name, "--step", newest}).exit.code, 0);
  EXPECT_EQ(steps(), 2);
  // The folder on the controller's machine is one like any other.
  const std::string folder = cluster().state_dir() + "/checkpoints/" + ended.checkpoint_folder.path;
  EXPECT_EQ(Run({"checkpoint", "verify", folder}).exit.code, 0);
  EXPECT_EQ(Run({"submit", "--from", folder, "-q"}).exit.code, 0);
}

TEST_F(WithoutAFolder, AJobGoesOnByItselfWhenAWorkerIsKilled) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(3));
  const std::string expected = Undisturbed(Job(2));
  const int64_t id = Submit(Job(2));
  ASSERT_TRUE(cluster().RunUntil(id, 400).ok());
  KillAWorkerOfTheJob();
  EXPECT_EQ(ModelOf(Ended(id)), expected);
  EXPECT_THAT(LogsOf(id), HasSubstr("goes on from the checkpoint of step"));
}

TEST_F(WithoutAFolder, AJobIsPausedAndResumed) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string expected = Undisturbed(Job(1));
  const int64_t id = Submit(Job(1));
  ASSERT_TRUE(cluster().RunUntil(id, 200).ok());
  EXPECT_EQ(Run({"pause", std::to_string(id)}).exit.code, 0);
  EXPECT_EQ(client().Get(id)->state, JobState::kPaused);
  EXPECT_EQ(Run({"resume", std::to_string(id)}).exit.code, 0);
  EXPECT_EQ(ModelOf(Ended(id)), expected);
}

// TorchTitan's keys, by the command line.
TEST_F(WithoutAFolder, KeysSayWhatIsLoadedAndWhatTheLastSaveHas) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string file =
      Write("job.toml", JobFile(Write("data.txt", text_), 1, 1, 40) +
                            "[checkpoint]\nenable = true\ninterval = 10\nlast_save_in_hf = true\n"
                            "export_dtype = \"bfloat16\"\nasync_mode = \"disabled\"\n");
  const ProcessOutput first = Run({"submit", file, "-q"});
  ASSERT_EQ(first.exit.code, 0) << first.stdout_text << first.stderr_text;
  const client::JobInfo job = client().Get(1).value();
  const std::string last =
      cluster().state_dir() + "/checkpoints/" + job.checkpoint_folder.path + "/step-00000040";
  const std::string exported = dir_.File("exported.safetensors");
  ASSERT_EQ(Run({"checkpoint", "export", "1", exported, "--dtype", "bfloat16"}).exit.code, 0);
  EXPECT_EQ(ReadFile(last + "/hf/model.safetensors").value_or("none"),
            ReadFile(exported).value_or(""));
  EXPECT_FALSE(FileExists(last + "/../step-00000030/hf")) << "not the last one";

  const ProcessOutput again =
      Run({"submit", file, "--resume", "1", "--set", "checkpoint.load_step=20", "--set",
           "checkpoint.exclude_from_loading=opt.*", "-q"});
  EXPECT_EQ(again.exit.code, 0) << again.stdout_text << again.stderr_text;
  EXPECT_THAT(again.stdout_text, HasSubstr("goes on  from step 20"));
  const ProcessOutput same = Run({"submit", "--resume", "1", "--set", "checkpoint.load_step=30",
                                  "--set", "checkpoint.folder=other", "-q"});
  EXPECT_EQ(same.exit.code, 0) << same.stdout_text << same.stderr_text;
  EXPECT_THAT(same.stdout_text, HasSubstr("goes on  from step 30"));
  const ProcessOutput done = Run({"submit", "--resume", "1", "-q"});
  EXPECT_EQ(done.exit.code, 0) << done.stdout_text << done.stderr_text;
  EXPECT_THAT(done.stdout_text, HasSubstr("no step was left to do"));
  const ProcessOutput missing = Run({"submit", "--resume", "1", "--step", "25", "-q"});
  EXPECT_NE(missing.exit.code, 0);
  EXPECT_THAT(missing.stderr_text, HasSubstr("job 1 has no checkpoint of step 25; it has 40, 30"));
  const ProcessOutput nothing = Run({"submit", file, "--set", "checkpoint.load_step=20"});
  EXPECT_EQ(nothing.exit.code, 2);
  EXPECT_THAT(nothing.stderr_text, HasSubstr("add --resume JOB or --from FOLDER"));
}

// ---- Killed where they write --------------------------------------------------------------------

class KilledWhereTheyWrite : public WithoutAFolder {
 protected:
  void StartArmed(int workers) {
    points_ = Failpoints::Open(dir_.File("points").c_str()).value();
    ProcessClusterOptions options;
    options.workers = workers;
    options.env = {{"MESHWRIGHT_FAILPOINTS", dir_.File("points")}};
    ASSERT_NO_FATAL_FAILURE(FaultFixture::Start(options));
  }
  static ir::JobRequest Short() {
    ir::JobRequest job = Job(2);
    job.train.steps = 400;
    job.checkpoint.interval = 100;
    return job;
  }
  // It has died, and another one has taken its place.
  void AwaitTheControllersDeath(const std::string& point) {
    ASSERT_TRUE(
        WaitUntil([&] { return points_->done() && !cluster().controller().Running(); }, kSoonMs))
        << "the controller does not pass " << point;
    const Status restarted = cluster().RestartController();
    ASSERT_TRUE(restarted.ok()) << restarted;
  }

  std::optional<Failpoints> points_;
};

TEST_F(KilledWhereTheyWrite, AJobWhoseExecutorDiesInASaveGoesOnFromTheSaveBefore) {
  ASSERT_NO_FATAL_FAILURE(StartArmed(2));
  const std::string expected = Undisturbed(Short());
  // Each of two members passes a point once in a save, and once with each of its two files.
  for (const auto& [point, passes] :
       {std::pair("executor.save.before-copy", 3), std::pair("executor.save.copied", 3),
        std::pair("executor.shard.sent-chunk", 6), std::pair("executor.save.before-report", 3)}) {
    SCOPED_TRACE(point);
    points_->Arm(point, passes);
    const int64_t id = Submit(Short());
    EXPECT_EQ(ModelOf(Ended(id)), expected);
    EXPECT_TRUE(points_->done());
    EXPECT_THAT(LogsOf(id), HasSubstr("recovered in"));
    ExpectWhole(id);
  }
}

TEST_F(KilledWhereTheyWrite, AJobWhoseControllerDiesInASaveGoesOnAndSavesAgain) {
  ASSERT_NO_FATAL_FAILURE(StartArmed(2));
  const std::string expected = Undisturbed(Short());
  for (const char* point : {"checkpoint.shard.appended", "checkpoint.commit.before-rename",
                            "checkpoint.commit.renamed", "controller.commit.before-report"}) {
    SCOPED_TRACE(point);
    points_->Arm(point, 2);
    const int64_t id = Submit(Short());
    ASSERT_NO_FATAL_FAILURE(AwaitTheControllersDeath(point));
    const client::JobInfo ended = Ended(id);
    EXPECT_EQ(ModelOf(ended), expected);
    EXPECT_EQ(ended.checkpoint_step, 400) << LogsOf(id);
    ExpectWhole(id);
  }
}

TEST_F(KilledWhereTheyWrite, NoJobThatWasAcceptedIsLost) {
  ASSERT_NO_FATAL_FAILURE(StartArmed(1));
  int64_t accepted = 0;
  for (const char* point :
       {"controller.before-persist", "controller.store.begun", "controller.store.before-commit",
        "controller.persisted", "controller.before-reply", "controller.before-progress"}) {
    SCOPED_TRACE(point);
    points_->Arm(point);
    ir::JobRequest job = Job(1);
    job.train.steps = 50;
    job.checkpoint.interval = 20;
    const auto id = cluster().Submit(job, text_);
    if (id.has_value()) accepted = std::max(accepted, *id);
    ASSERT_NO_FATAL_FAILURE(AwaitTheControllersDeath(point));
    for (int64_t each = 1; each <= accepted; ++each) Ended(each);
  }
  EXPECT_GT(accepted, 0) << "no point was behind the answer";
}

}  // namespace
}  // namespace meshwright::testing
