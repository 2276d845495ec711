// The control plane end to end: submit, run, watch, fail, restart, over real sockets in one
// process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "base/text.h"
#include "formats/safetensors.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing {
namespace {

using client::JobInfo;
using client::JobState;
using client::JobUpdate;
using client::StepMetrics;
using ::testing::HasSubstr;

constexpr int64_t kJobMs = 60'000;
constexpr int64_t kForeverSteps = 1'000'000;

std::unique_ptr<LocalCluster> StartCluster(LocalClusterOptions options = {}) {
  auto cluster = LocalCluster::Start(std::move(options));
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  return cluster.has_value() ? std::move(*cluster) : nullptr;
}

struct Outcome {
  JobInfo info;
  std::vector<StepMetrics> steps;
  std::vector<std::string> lines;
};

Outcome Finish(LocalCluster& cluster, const Result<int64_t>& id) {
  Outcome run;
  EXPECT_TRUE(id.has_value()) << id.error();
  if (!id.has_value()) return run;
  const auto info = cluster.client().Watch(
      *id,
      [&run](const JobUpdate& update) {
        run.steps.insert(run.steps.end(), update.steps.begin(), update.steps.end());
        run.lines.insert(run.lines.end(), update.log_lines.begin(), update.log_lines.end());
        return true;
      },
      kJobMs);
  EXPECT_TRUE(info.has_value()) << info.error();
  if (info.has_value()) run.info = *info;
  return run;
}

// Returns once the job has done a step.
void WaitForStep(LocalCluster& cluster, int64_t id) {
  const auto info = cluster.client().Watch(
      id, [](const JobUpdate& update) { return update.steps.empty(); }, kJobMs);
  ASSERT_TRUE(info.has_value()) << info.error();
  ASSERT_EQ(info->state, JobState::kRunning) << info->message;
}

TEST(Control, TrainsAndLeavesTheFilesOfTheRun) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  ir::JobRequest job = ByteJob(1, 2, 6);
  job.train.validate_every = 4;
  const auto id = cluster->Submit(job, SampleBytes(20'000));
  const Outcome run = Finish(*cluster, id);
  ASSERT_EQ(run.info.state, JobState::kSucceeded) << run.info.message;
  EXPECT_EQ(run.info.steps_done, 6);
  EXPECT_THAT(run.info.layout, HasSubstr("pipeline=2"));
  ASSERT_EQ(run.steps.size(), 6u);
  for (size_t i = 0; i < run.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].step, static_cast<int64_t>(i));
    EXPECT_GT(run.steps[i].loss, 0);
    EXPECT_GT(run.steps[i].grad_norm, 0);
    EXPECT_EQ(run.steps[i].tokens, 64);
    EXPECT_EQ(std::isnan(run.steps[i].validation_loss), i != 3 && i != 5) << i;
  }
  const std::string dir = run.info.directory;
  const auto metrics = ReadFile(dir + "/metrics.jsonl");
  ASSERT_TRUE(metrics.has_value());
  EXPECT_EQ(std::count(metrics->begin(), metrics->end(), '\n'), 6);
  EXPECT_TRUE(FileExists(dir + "/plan.txt"));
  EXPECT_EQ(ReadFile(dir + "/config.resolved.toml").value_or(""), job.config_text);
  const auto logs = cluster->client().Logs(*id);
  ASSERT_TRUE(logs.has_value());
  EXPECT_EQ(*logs, run.lines);
  EXPECT_THAT(logs->back(), HasSubstr("SUCCEEDED after 6 steps"));
  const auto weights = formats::SafetensorsFile::Open(dir + "/model.safetensors");
  ASSERT_TRUE(weights.has_value()) << weights.error();
  EXPECT_EQ((*weights)->entries().size(), job.main().graph.NodesOf(ir::Op::kParam).size());
}

TEST(Control, AStepCostsTwoMessagesPerWorkerAndKStepsShareThem) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  std::vector<std::map<std::string, int64_t>> others;  // what does not depend on the steps
  for (const int64_t steps_per_launch : {1, 5}) {
    ir::JobRequest job = ByteJob(2, 1, 20);
    job.train.steps_per_launch = steps_per_launch;
    job.train.validation_batches = 0;
    job.save_weights = false;
    const auto id = cluster->Submit(job, SampleBytes(20'000));
    const Outcome run = Finish(*cluster, id);
    ASSERT_EQ(run.info.state, JobState::kSucceeded) << run.info.message;
    auto counts = cluster->server().MessageCounts(*id);
    const int64_t init = 1;
    EXPECT_EQ(counts["Launch"], 2 * (20 / steps_per_launch + init));
    EXPECT_EQ(counts["LaunchDone"], 2 * (20 / steps_per_launch + init));
    counts.erase("Launch");
    counts.erase("LaunchDone");
    counts.erase("MeshReleased");  // arrives after the job's end
    others.emplace_back(counts.begin(), counts.end());
  }
  EXPECT_EQ(others[0], others[1]);
}

TEST(Control, AnyLayoutGivesTheLossesOfOneDevice) {
  LocalClusterOptions options;
  options.devices_per_worker = 2;
  const auto cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  std::vector<Outcome> runs;
  for (const auto& [data, pipeline] : {std::pair{1, 1}, {2, 2}, {4, 1}}) {
    runs.push_back(
        Finish(*cluster, cluster->Submit(ByteJob(data, pipeline, 4), SampleBytes(9000))));
    ASSERT_EQ(runs.back().info.state, JobState::kSucceeded) << runs.back().info.message;
    ASSERT_EQ(runs.back().steps.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(runs.back().steps[i].loss, runs[0].steps[i].loss, 1e-10);
    }
    EXPECT_NEAR(runs.back().steps[3].validation_loss, runs[0].steps[3].validation_loss, 1e-10);
  }
}

TEST(Control, StartsFromSavedWeightsOnAnotherLayout) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const std::string text = SampleBytes(20'000);
  const Outcome first = Finish(*cluster, cluster->Submit(ByteJob(1, 2, 5), text));
  ASSERT_EQ(first.info.state, JobState::kSucceeded) << first.info.message;
  ir::JobRequest again = ByteJob(2, 1, 1);
  again.optimizer.lr = 0;
  again.optimizer.min_lr = 0;
  const auto weights = cluster->client().UploadFile(first.info.directory + "/model.safetensors");
  ASSERT_TRUE(weights.has_value()) << weights.error();
  again.init_weights.blob = *weights;
  const Outcome second = Finish(*cluster, cluster->Submit(again, text));
  ASSERT_EQ(second.info.state, JobState::kSucceeded) << second.info.message;
  // With a learning rate of 0 the weights stay: the validation loss is that of the first run's end.
  EXPECT_NEAR(second.steps[0].validation_loss, first.steps[4].validation_loss, 1e-12);
}

TEST(Control, RefusesWeightsOfAnotherModelNamingTheTensor) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const std::string path = cluster->File("other.safetensors");
  auto writer = formats::SafetensorsWriter::Create(path, {{"something", {ir::DType::kF64, {2}}}});
  ASSERT_TRUE(writer.has_value()) << writer.error();
  const double zeros[2] = {0, 0};
  ASSERT_TRUE((*writer)->Write("something", 0, std::as_bytes(std::span(zeros))).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  ir::JobRequest job = ByteJob(1, 1, 1);
  job.init_weights.blob = cluster->client().UploadFile(path).value_or(ir::BlobRef{});
  const Outcome run = Finish(*cluster, cluster->Submit(job, SampleBytes(9000)));
  EXPECT_EQ(run.info.state, JobState::kFailed);
  EXPECT_THAT(run.info.message, HasSubstr("other.safetensors"));
  EXPECT_THAT(run.info.message, HasSubstr("weight"));
}

TEST(Control, RefusesAJobWhoseDataWasNotUploaded) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  ir::JobRequest job = ByteJob(1, 1, 1);
  job.data.blob = {std::string(64, 'a'), 100, "missing.txt"};
  const auto id = cluster->client().Submit(job);
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(id.error().message(), HasSubstr("missing.txt"));
  const std::string text = SampleBytes(9000);
  job = ByteJob(1, 1, 1);
  ASSERT_TRUE(WriteFileAtomic(cluster->File("data.txt"), text).ok());
  job.data.blob = cluster->client().UploadFile(cluster->File("data.txt")).value();
  job.data.blob.size_bytes += 1;
  const auto longer = cluster->client().Submit(job);
  ASSERT_FALSE(longer.has_value());
  EXPECT_EQ(longer.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(longer.error().message(), HasSubstr("has 9000 bytes, the request says 9001"));
  job.train.steps = 0;
  EXPECT_EQ(cluster->client().Submit(job).error().code(), StatusCode::kInvalidArgument);
}

TEST(Control, RefusesADegreeThatDoesNotFitWithWhatWould) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const Outcome large = Finish(*cluster, cluster->Submit(ByteJob(8, 1, 1), SampleBytes(9000)));
  EXPECT_EQ(large.info.reason, "Infeasible");
  EXPECT_THAT(large.info.message, HasSubstr("needs 8 devices, the cluster has 2"));
  ir::JobRequest odd = ByteJob(2, 1, 1);
  odd.train.global_batch = 3;
  EXPECT_FALSE(cluster->Submit(odd, SampleBytes(9000)).has_value()) << "the feed is for 4 rows";
}

TEST(Control, TooShortDataFailsTheJobWithTheSizes) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const Outcome run = Finish(*cluster, cluster->Submit(ByteJob(1, 2, 1), "short"));
  EXPECT_EQ(run.info.state, JobState::kFailed);
  EXPECT_EQ(run.info.reason, "LoadFailed");
  EXPECT_THAT(run.info.message, HasSubstr("too short"));
}

TEST(Control, CancelEndsARunningJobAndFreesItsDevices) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const auto id = cluster->Submit(ByteJob(2, 1, kForeverSteps), SampleBytes(9000));
  ASSERT_TRUE(id.has_value()) << id.error();
  WaitForStep(*cluster, *id);
  EXPECT_TRUE(cluster->client().Cancel(*id).ok());
  const auto info = cluster->client().Wait(*id, 10'000);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, JobState::kCancelled);
  const Outcome next = Finish(*cluster, cluster->Submit(ByteJob(2, 1, 2), SampleBytes(9000)));
  EXPECT_EQ(next.info.state, JobState::kSucceeded) << next.info.message;
}

TEST(Control, AStoppedWorkerFailsItsJobWithItsName) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  ir::JobRequest job = ByteJob(2, 1, kForeverSteps);
  job.fault_tolerance.enable = false;
  const auto id = cluster->Submit(job, SampleBytes(9000));
  ASSERT_TRUE(id.has_value()) << id.error();
  WaitForStep(*cluster, *id);
  cluster->agent(1).Stop();
  const auto info = cluster->client().Wait(*id, 10'000);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, JobState::kFailed);
  EXPECT_EQ(info->reason, "WorkerStopped") << info->message;
  EXPECT_THAT(info->message, HasSubstr("'w1'"));
  const Outcome next = Finish(*cluster, cluster->Submit(ByteJob(1, 1, 2), SampleBytes(9000)));
  EXPECT_EQ(next.info.state, JobState::kSucceeded) << next.info.message;
}

TEST(Control, ARestartedControllerKeepsQueueAndHistory) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const Outcome done = Finish(*cluster, cluster->Submit(ByteJob(1, 1, 3), SampleBytes(9000)));
  ir::JobRequest forever = ByteJob(2, 1, kForeverSteps);
  forever.fault_tolerance.enable = false;
  const auto running = cluster->Submit(forever, SampleBytes(9000));
  ASSERT_TRUE(running.has_value()) << running.error();
  WaitForStep(*cluster, *running);
  const auto queued = cluster->Submit(ByteJob(2, 1, 3), SampleBytes(9000));
  ASSERT_TRUE(queued.has_value()) << queued.error();
  const Status restarted = cluster->RestartServer();
  ASSERT_TRUE(restarted.ok()) << restarted;
  EXPECT_EQ(cluster->client().Get(*running)->reason, "ControllerStopped");
  const Outcome next = Finish(*cluster, queued);
  EXPECT_EQ(next.info.state, JobState::kSucceeded) << next.info.message;
  // The history of a job of the controller's earlier life is read from its files.
  const Outcome again = Finish(*cluster, done.info.id);
  EXPECT_EQ(again.steps.size(), 3u);
  EXPECT_EQ(again.lines, done.lines);
}

TEST(Control, FailsTheJobWhenTheWeightsFileCannotBeWritten) {
  LocalClusterOptions options;
  const auto cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  // A folder where the file should be is the failure that needs no full disk.
  std::filesystem::create_directories(cluster->state_dir() + "/jobs/1/model.safetensors/x");
  const Outcome run = Finish(*cluster, cluster->Submit(ByteJob(1, 1, 2), SampleBytes(9000)));
  EXPECT_EQ(run.info.state, JobState::kFailed);
  EXPECT_EQ(run.info.reason, "SaveFailed");
  EXPECT_THAT(run.info.message, HasSubstr("model.safetensors"));
}

TEST(Control, SubmittingTwiceRunsBothInOrder) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  const auto first = cluster->Submit(ByteJob(2, 1, 3), SampleBytes(9000));
  const auto second = cluster->Submit(ByteJob(2, 1, 3), SampleBytes(9000));
  const Outcome b = Finish(*cluster, second);
  const auto a = cluster->client().Get(*first);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->state, JobState::kSucceeded);
  EXPECT_EQ(b.info.state, JobState::kSucceeded);
  EXPECT_GE(b.info.started_unix_ms, a->ended_unix_ms);
  const auto jobs = cluster->client().List();
  ASSERT_TRUE(jobs.has_value());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].id, *second) << "newest first";
}

// ---- Who may come in ----

TEST(ControlAccess, AWrongTokenIsRefusedOnBothSides) {
  LocalClusterOptions options;
  options.token = "right";
  const auto cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  client::Client::Options wrong;
  wrong.address = fmt::format("127.0.0.1:{}", cluster->port());
  wrong.token = "wrong";
  const auto client = client::Client::Connect(wrong);
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), StatusCode::kUnauthenticated);
  worker::AgentOptions agent_options = cluster->AgentOptionsFor("stranger");
  agent_options.token = "wrong";
  auto agent = worker::Agent::Start(agent_options);
  ASSERT_TRUE(agent.has_value()) << agent.error();
  const Status end = (*agent)->Wait(10'000);
  EXPECT_EQ(end.code(), StatusCode::kUnauthenticated) << end;
  EXPECT_THAT(end.message(), HasSubstr("token is wrong"));
}

TEST(ControlAccess, AWorkerGivesUpWhenNoControllerAnswers) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  worker::AgentOptions options = cluster->AgentOptionsFor("lonely");
  options.controller = "127.0.0.1:1";
  options.connect_timeout_ms = 300;
  auto agent = worker::Agent::Start(options);
  ASSERT_TRUE(agent.has_value()) << agent.error();
  const Status end = (*agent)->Wait(10'000);
  EXPECT_EQ(end.code(), StatusCode::kUnavailable);
  EXPECT_THAT(end.message(), HasSubstr("127.0.0.1:1"));
}

TEST(ControlAccess, ASecondWorkerOfTheSameNameIsTurnedAway) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  worker::AgentOptions options = cluster->AgentOptionsFor("w0");
  options.connect_timeout_ms = 300;
  auto twin = worker::Agent::Start(options);
  ASSERT_TRUE(twin.has_value()) << twin.error();
  const Status end = (*twin)->Wait(10'000);
  EXPECT_EQ(end.code(), StatusCode::kAlreadyExists) << end;
  EXPECT_TRUE(cluster->WaitForState("READY", 2).ok()) << "the first one is not disturbed";
}

TEST(ControlAccess, SaysWhatIsWrongWithItsOwnAddressOrState) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  controller::ServerOptions options;
  options.metrics_port = -1;
  options.state_dir = cluster->state_dir();
  options.port = 0;
  const auto same_state = controller::Server::Start(options);
  ASSERT_FALSE(same_state.has_value());
  EXPECT_EQ(same_state.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(same_state.error().message(), HasSubstr("another controller (process"));
  options.state_dir = cluster->File("other");
  options.port = cluster->port();
  const auto same_port = controller::Server::Start(options);
  ASSERT_FALSE(same_port.has_value());
  EXPECT_EQ(same_port.error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(same_port.error().message(), HasSubstr(std::to_string(cluster->port())));
  options.bind = "192.0.2.1";  // for documentation: no machine has it
  options.token = "token";
  options.insecure = true;
  const auto foreign = controller::Server::Start(options);
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(foreign.error().message(), HasSubstr("address of this machine"));
  options.token.clear();
  options.bind = "0.0.0.0";
  options.port = 0;
  const auto open = controller::Server::Start(options);
  ASSERT_FALSE(open.has_value());
  EXPECT_EQ(open.error().code(), StatusCode::kInvalidArgument);
  options.token = "token";
  options.insecure = false;
  const auto clear = controller::Server::Start(options);
  ASSERT_FALSE(clear.has_value());
  EXPECT_THAT(clear.error().message(), HasSubstr("meshwright cert init"));
}

}  // namespace
}  // namespace meshwright::testing
