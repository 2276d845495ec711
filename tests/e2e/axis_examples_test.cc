// The examples of axes, with processes: two workers share every row, or the experts of each layer.
// The model is that of one device, and a worker that is killed costs nothing but time.
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

// An example of an axis, made small; `shared`: what two workers share by it.
struct AxisExample {
  const char* name;
  const char* file;
  std::vector<std::string> one;     // settings on one worker
  std::vector<std::string> shared;  // on two
  const char* layout;
};
void PrintTo(const AxisExample& example, std::ostream* out) { *out << example.name; }

class AxisExamples : public FaultFixture, public ::testing::WithParamInterface<AxisExample> {
 protected:
  // Submits the example with rows of 64 tokens.
  std::unique_ptr<Subprocess> Submit(bool shared, int64_t steps) {
    const AxisExample& example = GetParam();
    std::vector<std::string> args = {"--address", cluster().address(), "submit",
                                     std::string(MESHWRIGHT_SOURCE_DIR "/examples/") + example.file,
                                     "-q"};
    std::vector<std::string> settings = {
        "training.dataset_path=" + Write("corpus.txt", SampleText(60'000)),
        "training.seq_len=64",
        "training.steps=" + std::to_string(steps),
        "validation.batches=1",
        "model.n_layers=2",
        "parallelism.tensor_parallel_degree=1",
        "parallelism.pipeline_parallel_degree=1"};
    const std::vector<std::string>& own = shared ? example.shared : example.one;
    settings.insert(settings.end(), own.begin(), own.end());
    for (const std::string& setting : settings) args.insert(args.end(), {"--set", setting});
    return Launch(args, cluster().File("submit.log"));
  }
  // The job that was submitted last, once it has ended.
  client::JobInfo Ended(int64_t id) {
    const client::JobInfo ended = client().Wait(id, 120'000).value();
    EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
    return ended;
  }
  Weights WeightsOf(const client::JobInfo& job) {
    return ReadWeights(job.directory + "/model.safetensors").value();
  }
  client::JobInfo Run(bool shared, int64_t steps) {
    const auto submit = Submit(shared, steps);
    EXPECT_TRUE(submit->Wait(120'000).value().ok());
    int64_t newest = 0;
    const std::vector<client::JobInfo> jobs = client().List().value();
    for (const client::JobInfo& job : jobs) newest = std::max(newest, job.id);
    return Ended(newest);
  }
};

TEST_P(AxisExamples, TrainTheModelOfOneDevice) {
  constexpr int64_t kFewSteps = 20;
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const client::JobInfo one = Run(/*shared=*/false, kFewSteps);
  const client::JobInfo shared = Run(/*shared=*/true, kFewSteps);
  EXPECT_THAT(shared.layout, HasSubstr(GetParam().layout));
  EXPECT_NEAR(shared.loss, one.loss, 1e-4);
  ExpectWeightsNear(WeightsOf(one), WeightsOf(shared), 1e-2, GetParam().layout);
}

TEST_P(AxisExamples, LoseNothingButTimeToAKilledWorker) {
  constexpr int64_t kManySteps = 160;
  ASSERT_NO_FATAL_FAILURE(StartWorkers(3));
  const client::JobInfo undisturbed = Run(/*shared=*/true, kManySteps);
  const auto submit = Submit(/*shared=*/true, kManySteps);
  const int64_t id = undisturbed.id + 1;
  ASSERT_TRUE(WaitUntil([&] { return client().Get(id).has_value(); }, kSoonMs));
  ASSERT_TRUE(cluster().RunUntil(id, 60).ok());
  const std::vector<client::WorkerInfo> workers = client().Workers().value();
  for (const client::WorkerInfo& worker : workers) {
    if (worker.busy_devices == 0) continue;
    Kill(cluster().worker(std::stoi(worker.name.substr(1))));
    break;
  }
  EXPECT_TRUE(submit->Wait(120'000).value().ok());
  const client::JobInfo ended = Ended(id);
  EXPECT_EQ(ReadFile(ended.directory + "/model.safetensors").value_or(""),
            ReadFile(undisturbed.directory + "/model.safetensors").value_or("-"))
      << "not the weights of the undisturbed run";
}

INSTANTIATE_TEST_SUITE_P(
    Axes, AxisExamples,
    ::testing::Values(AxisExample{"context",
                                  "long-context.toml",
                                  {"parallelism.context_parallel_degree=1",
                                   "parallelism.data_parallel_replicate_degree=1"},
                                  {"parallelism.context_parallel_degree=2",
                                   "parallelism.data_parallel_replicate_degree=1"},
                                  "context=2"},
                      AxisExample{"expert",
                                  "moe-bytes.toml",
                                  {"parallelism.expert_parallel_degree=1",
                                   "parallelism.data_parallel_replicate_degree=1"},
                                  {"parallelism.data_parallel_replicate_degree=2"},
                                  "expert=2"},
                      AxisExample{"lora",
                                  "lora.toml",
                                  {"parallelism.data_parallel_replicate_degree=1"},
                                  {"parallelism.data_parallel_replicate_degree=1",
                                   "parallelism.tensor_parallel_degree=2"},
                                  "tensor=2"},
                      AxisExample{"vocabulary",
                                  "shared-vocabulary.toml",
                                  {"parallelism.data_parallel_replicate_degree=1"},
                                  {"parallelism.pipeline_parallel_degree=2",
                                   "parallelism.data_parallel_replicate_degree=1"},
                                  "pipeline=2 microbatches=8 schedule=1f1b-vocab"}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace meshwright::testing
