// What only real processes show: training over shared memory and over TCP.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "ir/safetensors.h"
#include "tests/e2e/process_cluster.h"

namespace meshwright::testing {
namespace {

class Transports : public ::testing::TestWithParam<const char*> {};

TEST_P(Transports, FourProcessesTrainLikeOneDevice) {
  ProcessClusterOptions options;
  options.worker_args = {"--transport", GetParam()};
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const std::string text = SampleText(60'000);
  std::vector<ProcessCluster::Followed> runs;
  for (const auto& [data, tensor, pipeline] : {std::tuple{1, 1, 1}, {2, 1, 2}, {1, 2, 2}}) {
    const auto id = (*cluster)->Submit(ByteJob(data, tensor, pipeline, 6), text);
    ASSERT_TRUE(id.has_value()) << id.error();
    auto followed = (*cluster)->Follow(*id);
    ASSERT_TRUE(followed.has_value()) << followed.error();
    ASSERT_EQ(followed->info.state, client::JobState::kSucceeded) << followed->info.message;
    ASSERT_EQ(followed->steps.size(), 6u);
    runs.push_back(std::move(*followed));
  }
  for (size_t run = 1; run < runs.size(); ++run) {
    for (size_t i = 0; i < runs[0].steps.size(); ++i) {
      EXPECT_NEAR(runs[run].steps[i].loss / runs[0].steps[i].loss, 1.0, 1e-5)
          << "run " << run << " step " << i;
    }
  }
  const auto weights = ir::SafetensorsFile::Open(runs[1].info.directory + "/model.safetensors");
  ASSERT_TRUE(weights.has_value()) << weights.error();
  const auto exits = (*cluster)->Stop();
  for (const auto& exit : exits) {
    ASSERT_TRUE(exit.has_value()) << exit.error();
    EXPECT_TRUE(exit->ok()) << exit->ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, Transports, ::testing::Values("shm", "tcp"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace meshwright::testing
