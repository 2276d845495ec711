// What only real processes show: training over shared memory and TCP, and the death of each part.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "ir/safetensors.h"
#include "tests/e2e/process_cluster.h"
#include "tests/e2e/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kJobMs = 60'000;

ir::JobRequest ByteJob(int data, int tensor, int pipeline, int64_t steps) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.vocabulary = 256;
  options.layers = 4;
  options.batch = 8;
  options.lr = 1e-3;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.steps = steps;
  job.train.validation_batches = 1;
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  return job;
}

struct Followed {
  client::JobInfo info;
  std::vector<client::StepMetrics> steps;
};

Result<Followed> Follow(ProcessCluster& cluster, int64_t id) {
  Followed followed;
  MW_ASSIGN_OR_RETURN(followed.info, cluster.client().Watch(
                                         id,
                                         [&](const client::JobUpdate& update) {
                                           followed.steps.insert(followed.steps.end(),
                                                                 update.steps.begin(),
                                                                 update.steps.end());
                                           return true;
                                         },
                                         kJobMs));
  return followed;
}

// Returns once the job has done `steps` steps.
Status RunUntil(ProcessCluster& cluster, int64_t id, int64_t steps) {
  MW_ASSIGN_OR_RETURN(
      const client::JobInfo info,
      cluster.client().Watch(
          id, [&](const client::JobUpdate& update) { return update.info.steps_done < steps; },
          kJobMs));
  if (info.steps_done >= steps) return OkStatus();
  return FailedPrecondition(
      fmt::format("the job ended after {} steps: {}", info.steps_done, info.message));
}

class Transports : public ::testing::TestWithParam<const char*> {};

TEST_P(Transports, FourProcessesTrainLikeOneDevice) {
  ProcessClusterOptions options;
  options.worker_args = {"--transport", GetParam()};
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const std::string text = SampleText(60'000);
  std::vector<Followed> runs;
  for (const auto& [data, tensor, pipeline] : {std::tuple{1, 1, 1}, {2, 1, 2}, {1, 2, 2}}) {
    const auto id = (*cluster)->Submit(ByteJob(data, tensor, pipeline, 6), text);
    ASSERT_TRUE(id.has_value()) << id.error();
    auto followed = Follow(**cluster, *id);
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

TEST(Faults, KilledWorkerFailsTheJobWithItsNameAndFreesTheRest) {
  auto cluster = ProcessCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const std::string text = SampleText(60'000);
  const auto id = (*cluster)->Submit(ByteJob(2, 1, 2, 100'000), text);
  ASSERT_TRUE(id.has_value()) << id.error();
  const Status running = RunUntil(**cluster, *id, 3);
  ASSERT_TRUE(running.ok()) << running;
  ASSERT_TRUE((*cluster)->worker(2).Signal(SIGKILL).ok());
  const auto ended = (*cluster)->client().Wait(*id, 15'000);
  ASSERT_TRUE(ended.has_value()) << ended.error();
  EXPECT_EQ(ended->state, client::JobState::kFailed);
  EXPECT_EQ(ended->reason, "WorkerLost") << ended->message;
  EXPECT_NE(ended->message.find(ProcessCluster::WorkerName(2)), std::string::npos)
      << ended->message;
  // The survivors take the next job.
  const auto next = (*cluster)->Submit(ByteJob(1, 1, 2, 3), text);
  ASSERT_TRUE(next.has_value()) << next.error();
  const auto done = (*cluster)->client().Wait(*next, kJobMs);
  ASSERT_TRUE(done.has_value()) << done.error();
  EXPECT_EQ(done->state, client::JobState::kSucceeded) << done->message;
}

TEST(Faults, CancelledJobEndsAndItsDevicesAreFree) {
  ProcessClusterOptions options;
  options.workers = 2;
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const std::string text = SampleText(60'000);
  const auto id = (*cluster)->Submit(ByteJob(1, 1, 2, 100'000), text);
  ASSERT_TRUE(id.has_value()) << id.error();
  const Status running = RunUntil(**cluster, *id, 2);
  ASSERT_TRUE(running.ok()) << running;
  const Status cancelled = (*cluster)->client().Cancel(*id);
  ASSERT_TRUE(cancelled.ok()) << cancelled;
  const auto ended = (*cluster)->client().Wait(*id, 15'000);
  ASSERT_TRUE(ended.has_value()) << ended.error();
  EXPECT_EQ(ended->state, client::JobState::kCancelled);
  const auto next = (*cluster)->Submit(ByteJob(2, 1, 1, 2), text);
  ASSERT_TRUE(next.has_value()) << next.error();
  const auto done = (*cluster)->client().Wait(*next, kJobMs);
  ASSERT_TRUE(done.has_value()) << done.error();
  EXPECT_EQ(done->state, client::JobState::kSucceeded) << done->message;
}

TEST(Faults, RestartedControllerKeepsTheHistoryAndSaysWhatHappened) {
  ProcessClusterOptions options;
  options.workers = 2;
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto id = (*cluster)->Submit(ByteJob(1, 1, 2, 100'000), SampleText(60'000));
  ASSERT_TRUE(id.has_value()) << id.error();
  const Status running = RunUntil(**cluster, *id, 2);
  ASSERT_TRUE(running.ok()) << running;
  ASSERT_TRUE((*cluster)->controller().Signal(SIGKILL).ok());
  ASSERT_TRUE((*cluster)->controller().Wait(5'000).has_value());
  const auto orphan = (*cluster)->client().Get(*id);
  ASSERT_FALSE(orphan.has_value());
  EXPECT_EQ(orphan.error().code(), StatusCode::kUnavailable);
  const Status restarted = (*cluster)->RestartController();
  ASSERT_TRUE(restarted.ok()) << restarted;
  const auto info = (*cluster)->client().Get(*id);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, client::JobState::kFailed);
  EXPECT_EQ(info->reason, "ControllerRestarted") << info->message;
  const Status ready = (*cluster)->WaitReady(2);
  EXPECT_TRUE(ready.ok()) << ready;
}

TEST(Faults, BadDataFailsTheJobWithThePosition) {
  ProcessClusterOptions options;
  options.workers = 1;
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  std::string text = SampleText(10'000);
  text[5000] = '\xff';
  const auto id = (*cluster)->Submit(ByteJob(1, 1, 1, 3), text);
  ASSERT_TRUE(id.has_value()) << id.error();
  const auto ended = (*cluster)->client().Wait(*id, kJobMs);
  ASSERT_TRUE(ended.has_value()) << ended.error();
  EXPECT_EQ(ended->state, client::JobState::kFailed);
  EXPECT_NE(ended->message.find("5000"), std::string::npos) << ended->message;
}

TEST(Faults, WrongTokenIsRefusedAtOnce) {
  ProcessClusterOptions options;
  options.workers = 1;
  options.env = {{"MESHWRIGHT_TOKEN", "right"}};
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto stranger = client::Client::Connect({(*cluster)->address(), "wrong", 5'000});
  ASSERT_FALSE(stranger.has_value());
  EXPECT_EQ(stranger.error().code(), StatusCode::kUnauthenticated) << stranger.error();
}

TEST(Faults, SecondControllerOnThePortSaysSoAndLeaves) {
  ProcessClusterOptions options;
  options.workers = 0;
  auto cluster = ProcessCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const std::string port = (*cluster)->address().substr((*cluster)->address().rfind(':') + 1);
  SubprocessOptions second;
  const std::string log = (*cluster)->log_dir() + "/second.log";
  second.args = {MESHWRIGHT_BINARY, "controller", "--port",      port,
                 "--metrics-port",  "0",          "--state-dir", (*cluster)->log_dir() + "/second"};
  second.stdout_to = OutputTo::File(log);
  second.stderr_to = OutputTo::File(log);
  auto process = Subprocess::Start(second);
  ASSERT_TRUE(process.has_value()) << process.error();
  const auto exit = (*process)->Wait(10'000);
  ASSERT_TRUE(exit.has_value()) << exit.error();
  EXPECT_FALSE(exit->ok());
  const auto text = ReadFile(log);
  ASSERT_TRUE(text.has_value());
  EXPECT_NE(text->find(port), std::string::npos) << *text;
}

}  // namespace
}  // namespace meshwright::testing
