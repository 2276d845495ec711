// What only real processes show: training over shared memory and over TCP.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/file.h"
#include "tests/e2e/process_cluster.h"
#include "tests/e2e/weights.h"

namespace meshwright::testing {
namespace {

class Transports : public ::testing::TestWithParam<const char*> {};

TinyOptions OptionsOf(const std::string& family, ir::DType dtype) {
  TinyOptions options = ByteOptions();
  options.family = family;
  options.dtype = dtype;
  // Adam divides by the gradient's size: where a gradient is all rounding, so is its step. A large
  // eps keeps rounding errors of f32 small.
  options.adam_eps = 1e-3;
  return options;
}

struct Trained {
  ProcessCluster::Followed followed;
  Weights weights;
};

Result<Trained> Train(ProcessCluster& cluster, const ir::JobRequest& job) {
  MW_ASSIGN_OR_RETURN(const auto id, cluster.Submit(job, SampleText(60'000)));
  Trained run;
  MW_ASSIGN_OR_RETURN(run.followed, cluster.Follow(id));
  if (run.followed.info.state != client::JobState::kSucceeded) {
    return Fail(Internal(run.followed.info.message));
  }
  MW_ASSIGN_OR_RETURN(run.weights, ReadWeights(run.followed.info.directory + "/model.safetensors"));
  return run;
}

TEST_P(Transports, FourProcessesTrainLikeOneDevice) {
  ProcessClusterOptions options;
  options.worker_args = {"--transport", GetParam()};
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  for (const auto& [family, dtype, tolerance] :
       {std::tuple{"gpt2", ir::DType::kF64, 1e-10}, {"llama", ir::DType::kF32, 1e-5}}) {
    const TinyOptions model = OptionsOf(family, dtype);
    const auto one = Train(**cluster, ByteJob(1, 1, 1, 6, model));
    ASSERT_TRUE(one.has_value()) << one.error();
    ASSERT_EQ(one->followed.steps.size(), 6u);
    for (const auto& [data, tensor, pipeline] : {std::tuple{2, 1, 2}, {1, 2, 2}}) {
      const std::string layout =
          fmt::format("{} data={} tensor={} pipeline={}", family, data, tensor, pipeline);
      const auto run = Train(**cluster, ByteJob(data, tensor, pipeline, 6, model));
      ASSERT_TRUE(run.has_value()) << layout << ": " << run.error();
      ASSERT_EQ(run->followed.steps.size(), 6u) << layout;
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(run->followed.steps[i].loss / one->followed.steps[i].loss, 1.0, tolerance)
            << layout << " step " << i;
      }
      ExpectWeightsNear(one->weights, run->weights, tolerance, layout);
      if (data == 1) continue;
      // A thread for collectives in each process changes no bit.
      ir::JobRequest beside = ByteJob(data, tensor, pipeline, 6, model);
      beside.parallel.overlap = true;
      const auto overlapped = Train(**cluster, beside);
      ASSERT_TRUE(overlapped.has_value()) << layout << ": " << overlapped.error();
      EXPECT_TRUE(run->weights == overlapped->weights) << layout << ", overlapping";
    }
  }
  const auto exits = (*cluster)->Stop();
  for (const auto& exit : exits) {
    ASSERT_TRUE(exit.has_value()) << exit.error();
    EXPECT_TRUE(exit->ok()) << exit->ToString();
  }
}

// Everything left to the search, on workers that say what they are: the same model.
TEST(Automatic, OpenDegreesTrainLikeOneDevice) {
  auto cluster = ProcessCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const TinyOptions model = OptionsOf("gpt2", ir::DType::kF64);
  const auto one = Train(**cluster, ByteJob(1, 1, 1, 4, model));
  ASSERT_TRUE(one.has_value()) << one.error();
  ir::JobRequest open = ByteJob(0, 0, 0, 4, model);
  open.parallel.microbatches = 0;
  open.parallel.schedule = "auto";
  open.parallel.zero = -1;
  const auto found = Train(**cluster, open);
  ASSERT_TRUE(found.has_value()) << found.error();
  ASSERT_EQ(found->followed.steps.size(), one->followed.steps.size());
  ExpectWeightsNear(one->weights, found->weights, 1e-10, "found");
}

INSTANTIATE_TEST_SUITE_P(Processes, Transports, ::testing::Values("shm", "tcp"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(Devices, AutoGoesOnWithCpusAndSaysWhyInALine) {
  ProcessClusterOptions options;
  options.workers = 1;
  options.device = "auto";
  // The reason where there is a driver.
  options.env = {{"MESHWRIGHT_CUDA_PLUGIN", "/no/such/plugin.so"}};
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto workers = (*cluster)->client().Workers();
  ASSERT_TRUE(workers.has_value()) << workers.error();
  EXPECT_EQ((*workers)[0].device_kind, "cpu");
  const auto log = ReadFile((*cluster)->File("w0.log"));
  ASSERT_TRUE(log.has_value()) << log.error();
  const size_t reason = log->find("devices are CPU devices, no GPU can be used: ");
  ASSERT_NE(reason, std::string::npos) << *log;
  const std::string line = log->substr(reason, log->find('\n', reason) - reason);
  EXPECT_TRUE(line.find("NVIDIA driver") != std::string::npos ||
              line.find("/no/such/plugin.so") != std::string::npos)
      << line;
}

}  // namespace
}  // namespace meshwright::testing
