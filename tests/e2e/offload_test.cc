// The example of a job whose optimizer state is in the host's memory, with processes: a worker
// whose devices have no room for it trains the same model bit for bit, and one that is killed costs
// nothing but time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;

class Offload : public FaultFixture {
 protected:
  static constexpr const char* kExample = MESHWRIGHT_SOURCE_DIR "/examples/offload.toml";

  void StartWith(int workers, const std::string& memory_mib) {
    ProcessClusterOptions options;
    options.workers = workers;
    options.worker_args = {"--memory-mib", memory_mib};
    ASSERT_NO_FATAL_FAILURE(Start(options));
  }
  std::vector<std::string> Submission(const std::string& memory, int64_t steps) {
    std::vector<std::string> args = {"--address", cluster().address(), "submit", kExample, "-q"};
    for (const std::string& setting :
         {"training.dataset_path=" + Write("corpus.txt", SampleText(60'000)),
          "training.steps=" + std::to_string(steps),
          "parallelism.optimizer_memory=\"" + memory + "\"",
          "parallelism.weights_memory=\"" + memory + "\"",
          "parallelism.gradients_memory=\"" + memory + "\"",
          "parallelism.activations_memory=\"" + memory + "\"",
          std::string("validation.batches=1")}) {
      args.insert(args.end(), {"--set", setting});
    }
    return args;
  }
  client::JobInfo Ended(int64_t id) {
    const client::JobInfo ended = client().Wait(id, 120'000).value();
    EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
    return ended;
  }
  std::string ModelOf(const client::JobInfo& job) {
    return ReadFile(job.directory + "/model.safetensors").value_or("");
  }
};

// The device has 12 MiB, the optimizer's state alone takes 36.8, the job 74.
TEST_F(Offload, TrainsWhatDoesNotFitBitForBit) {
  ASSERT_NO_FATAL_FAILURE(StartWith(1, "12"));
  const Failure refused = Fails(Submission("device", 10));
  EXPECT_THAT(refused.text, HasSubstr("parallelism.optimizer_memory = \"host\""));
  // It was queued: that it does not fit is found when its turn comes.
  EXPECT_EQ(refused.code, 4) << refused.text;
  const client::JobInfo unfit = client().Get(1).value();
  EXPECT_EQ(unfit.state, JobState::kFailed);
  EXPECT_EQ(unfit.steps_done, 0);
  const auto submit = Launch(Submission("host", 10), cluster().File("submit.log"));
  EXPECT_TRUE(submit->Wait(120'000).value().ok());
  const std::string small = ModelOf(Ended(2));
  TearDown();
  ASSERT_NO_FATAL_FAILURE(StartWith(1, "512"));
  const auto whole = Launch(Submission("device", 10), cluster().File("submit.log"));
  EXPECT_TRUE(whole->Wait(120'000).value().ok());
  const std::string large = ModelOf(Ended(1));
  EXPECT_FALSE(large.empty());
  EXPECT_TRUE(small == large) << "not the weights of the job with room";
}

// Whoever plans knows that the worker has no folder on a disk: plan, and the controller.
TEST_F(Offload, StateOnADiskIsPlannedForWorkersThatHaveOneAlone) {
  ASSERT_NO_FATAL_FAILURE(StartWith(1, "512"));
  std::vector<std::string> args = Submission("device", 2);
  args.insert(args.end(), {"--set", "parallelism.optimizer_memory=\"disk\""});
  const char* const why =
      "parallelism.optimizer_memory = \"disk\": no worker was started with a folder for it; start "
      "the workers with --scratch-dir DIR";
  EXPECT_THAT(Fails(args).text, HasSubstr(why));
  std::replace(args.begin(), args.end(), std::string("submit"), std::string("plan"));
  std::erase(args, "-q");
  EXPECT_THAT(Fails(args).text, HasSubstr(why));
  TearDown();
  ProcessClusterOptions options;
  options.workers = 1;
  const std::string scratch = dir_.File("disk");
  ASSERT_TRUE(MakeDirs(scratch).ok());
  options.worker_args = {"--memory-mib", "512", "--scratch-dir", scratch};
  ASSERT_NO_FATAL_FAILURE(Start(options));
  args = Submission("device", 2);
  args.insert(args.end(), {"--set", "parallelism.optimizer_memory=\"disk\""});
  const auto submit = Launch(args, cluster().File("submit.log"));
  EXPECT_TRUE(submit->Wait(120'000).value().ok());
  Ended(1);
}

TEST_F(Offload, GoesOnBitForBitAfterAKill) {
  constexpr int64_t kManySteps = 150;
  ASSERT_NO_FATAL_FAILURE(StartWith(2, "12"));
  const auto first = Launch(Submission("host", kManySteps), cluster().File("first.log"));
  EXPECT_TRUE(first->Wait(120'000).value().ok());
  const std::string undisturbed = ModelOf(Ended(1));
  const auto second = Launch(Submission("host", kManySteps), cluster().File("second.log"));
  ASSERT_TRUE(WaitUntil([&] { return client().Get(2).has_value(); }, kSoonMs));
  ASSERT_TRUE(cluster().RunUntil(2, 40).ok());
  const std::vector<client::WorkerInfo> workers = client().Workers().value();
  for (const client::WorkerInfo& worker : workers) {
    if (worker.busy_devices == 0) continue;
    Kill(cluster().worker(std::stoi(worker.name.substr(1))));
    break;
  }
  EXPECT_TRUE(second->Wait(120'000).value().ok());
  EXPECT_TRUE(ModelOf(Ended(2)) == undisturbed) << "not the weights of the undisturbed run";
}

}  // namespace
}  // namespace meshwright::testing
