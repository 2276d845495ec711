#include "tests/e2e/fault_fixture.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "tests/e2e/http_get.h"

namespace meshwright::testing {
namespace {

// Sum of the gauges of one name on a page of Prometheus text; -1 without any.
double SumOf(const std::string& page, const std::string& name) {
  double sum = -1;
  for (const std::string& line : Split(page, '\n')) {
    if (line.rfind(name, 0) != 0) continue;
    sum = std::max(sum, 0.0) + std::atof(line.substr(line.rfind(' ') + 1).c_str());
  }
  return sum;
}

}  // namespace

void FaultFixture::TearDown() {
  if (cluster_) {
    leftovers_.Note();
    int killed = 0;
    for (const auto& exit : cluster_->Stop()) {
      ASSERT_TRUE(exit.has_value()) << exit.error();
      if (exit->signal == SIGKILL) ++killed;
      EXPECT_TRUE(exit->ok() || exit->signal == SIGKILL) << exit->ToString();
    }
    EXPECT_EQ(killed, killed_) << "a process did not end on SIGTERM";
    // Who is killed cannot tidy up its temporary folder.
    if (killed_ == 0) {
      EXPECT_TRUE(std::filesystem::is_empty(cluster_->temp_dir()));
    }
  }
  cluster_.reset();
  EXPECT_EQ(leftovers_.Find(), "");
}

void FaultFixture::Start(ProcessClusterOptions options) {
  auto started = ProcessCluster::Start(std::move(options));
  ASSERT_TRUE(started.has_value()) << started.error();
  cluster_ = std::move(*started);
  const auto workers = client().Workers();
  ASSERT_TRUE(workers.has_value()) << workers.error();
  for (const client::WorkerInfo& worker : *workers) {
    metrics_addresses_.push_back(worker.metrics_address);
  }
}

void FaultFixture::StartWorkers(int workers) {
  ProcessClusterOptions options;
  options.workers = workers;
  Start(std::move(options));
}

int64_t FaultFixture::StartJob(int data, int pipeline, int64_t steps, bool recovers) {
  ir::JobRequest job = ByteJob(data, 1, pipeline, steps);
  job.fault_tolerance.enable = recovers;
  const auto id = cluster_->Submit(std::move(job), SampleText(60'000));
  EXPECT_TRUE(id.has_value()) << id.error();
  if (!id.has_value()) return 0;
  const Status running = cluster_->RunUntil(*id, 3);
  EXPECT_TRUE(running.ok()) << running;
  leftovers_.Note();
  return *id;
}

client::JobInfo FaultFixture::EndOf(int64_t id) {
  const auto info = client().Wait(id, kSoonMs);
  EXPECT_TRUE(info.has_value()) << info.error();
  return info.value_or(client::JobInfo{});
}

void FaultFixture::ExpectAJobSucceeds(int data, int pipeline) {
  const auto id = cluster_->Submit(ByteJob(data, 1, pipeline, 3), SampleText(60'000));
  ASSERT_TRUE(id.has_value()) << id.error();
  const client::JobInfo info = EndOf(*id);
  EXPECT_EQ(info.state, client::JobState::kSucceeded) << info.message;
}

void FaultFixture::End(Subprocess& process, int signal) {
  ASSERT_TRUE(process.Signal(signal).ok());
  ASSERT_TRUE(process.Wait(kSoonMs).has_value());
  ++killed_;
}

void FaultFixture::Freeze(const Subprocess& process) {
  ASSERT_EQ(::kill(process.pid(), SIGSTOP), 0) << strerror(errno);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WSTOPPED), 0)
      << strerror(errno);
}

void FaultFixture::RestartController() {
  // The killed one is not the cluster's any more, and so not reported on.
  --killed_;
  const Status restarted = cluster_->RestartController();
  ASSERT_TRUE(restarted.ok()) << restarted;
}

void FaultFixture::ExpectHoldsNothingOfAJob(int worker) {
  Holdings held;
  const bool free = WaitUntil(
      [&] {
        held = HoldingsOfWorker(cluster_->worker(worker).pid());
        std::erase_if(held.connections, [&](const std::string& connection) {
          return connection.find(" -> " + cluster_->address()) != std::string::npos;
        });
        return held.shared_memory.empty() && held.connections.empty();
      },
      kSoonMs);
  EXPECT_TRUE(free) << ProcessCluster::WorkerName(worker) << " holds "
                    << ::testing::PrintToString(held.shared_memory) << " and connections "
                    << ::testing::PrintToString(held.connections);
  std::string page;
  // None at all where no job has come to it.
  const bool told = WaitUntil(
      [&] {
        page = HttpGet(metrics_addresses_.at(static_cast<size_t>(worker)), "/metrics");
        return SumOf(page, "meshwright_device_memory_bytes{") <= 0;
      },
      kSoonMs);
  EXPECT_TRUE(told) << page;
}

FaultFixture::Failure FaultFixture::Fails(
    const std::vector<std::string>& args,
    const std::vector<std::pair<std::string, std::string>>& env) {
  auto all = env;
  const std::string temp_dir = dir_.File("tmp");
  EXPECT_TRUE(MakeDirs(temp_dir).ok());
  all.emplace_back("TMPDIR", temp_dir);
  const auto run = RunMeshwright(args, all, kSoonMs);
  EXPECT_TRUE(run.has_value()) << run.error();
  if (!run.has_value()) return {};
  EXPECT_EQ(run->exit.signal, 0) << run->exit.ToString();
  EXPECT_NE(run->exit.code, 0) << run->stdout_text;
  EXPECT_TRUE(std::filesystem::is_empty(temp_dir)) << Join(args, " ");
  return {run->exit.code, run->stdout_text + run->stderr_text};
}

std::string FaultFixture::Write(const std::string& name, const std::string& bytes) {
  const std::string path = dir_.File(name);
  EXPECT_TRUE(WriteFileAtomic(path, bytes).ok()) << path;
  return path;
}

std::unique_ptr<Subprocess> FaultFixture::Launch(const std::vector<std::string>& args,
                                                 const std::string& log) {
  SubprocessOptions options;
  options.args = {MESHWRIGHT_BINARY};
  options.args.insert(options.args.end(), args.begin(), args.end());
  options.stdout_to = OutputTo::File(log);
  options.stderr_to = OutputTo::File(log);
  options.death_signal = SIGKILL;
  auto process = Subprocess::Start(options);
  EXPECT_TRUE(process.has_value()) << process.error();
  return process.has_value() ? std::move(*process) : nullptr;
}

std::string JobFile(const std::string& dataset, int data, int pipeline, int64_t steps,
                    const std::string& more) {
  return fmt::format(R"([job]
name = "tiny"
[model]
name = "gpt2"
vocab_size = 256
dim = 32
n_layers = 4
n_heads = 4
[parallelism]
data_parallel_replicate_degree = {}
pipeline_parallel_degree = {}
[training]
dataset_path = "{}"
global_batch_size = 8
seq_len = 16
steps = {}
{})",
                     data, pipeline, dataset, steps, more);
}

}  // namespace meshwright::testing
