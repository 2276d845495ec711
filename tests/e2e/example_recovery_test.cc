// A worker is killed under the examples of models with rows of their own: what they end with is
// what they end with undisturbed, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

class ExampleRecovery : public FaultFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  std::unique_ptr<Subprocess> Submit() {
    const std::string file = cluster().File("examples/") + GetParam() + ".toml";
    return Launch(
        {"--address", cluster().address(), "submit", file, "-q", "--set", "training.steps=400",
         "--set", "parallelism.data_parallel_replicate_degree=2", "--set",
         "parallelism.pipeline_parallel_degree=1", "--set", "parallelism.tensor_parallel_degree=1"},
        cluster().File("submit.log"));
  }
  std::string WeightsOf(int64_t id) {
    const auto ended = client().Wait(id, 120'000);
    EXPECT_TRUE(ended.has_value()) << ended.error();
    if (!ended.has_value()) return "";
    EXPECT_EQ(ended->state, client::JobState::kSucceeded) << ended->message;
    return ReadFile(ended->directory + "/model.safetensors").value_or("");
  }
};

TEST_P(ExampleRecovery, LosesNothingButTimeToAKilledWorker) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(3));
  // Rows are kept beside the texts: not in the tree.
  std::filesystem::copy(MESHWRIGHT_SOURCE_DIR "/examples", cluster().File("examples"),
                        std::filesystem::copy_options::recursive);
  EXPECT_TRUE(Submit()->Wait(120'000).value().ok());
  const std::string undisturbed = WeightsOf(1);
  ASSERT_FALSE(undisturbed.empty());
  const auto submit = Submit();
  ASSERT_TRUE(WaitUntil([&] { return client().Get(2).has_value(); }, kSoonMs));
  ASSERT_TRUE(cluster().RunUntil(2, 20).ok());
  const std::vector<client::WorkerInfo> workers = client().Workers().value();
  for (const client::WorkerInfo& worker : workers) {
    if (worker.busy_devices == 0) continue;
    Kill(cluster().worker(std::stoi(worker.name.substr(1))));
    break;
  }
  EXPECT_TRUE(submit->Wait(120'000).value().ok());
  EXPECT_TRUE(WeightsOf(2) == undisturbed) << "not the weights of the undisturbed run";
}

INSTANTIATE_TEST_SUITE_P(Rows, ExampleRecovery,
                         ::testing::Values("bert-classifier", "t5-pairs", "vit-shapes", "instruct"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace meshwright::testing
