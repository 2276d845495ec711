#include "tests/e2e/process_cluster.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "base/philox.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kStartMs = 30'000;
constexpr int64_t kJobMs = 60'000;

// What the tests start inherits it: workers that measured their kernels first would start later.
[[maybe_unused]] const bool kMeasuresNothing = ::setenv("MESHWRIGHT_PROFILE", "off", 0) == 0;
// A test must not find what another run has planned.
[[maybe_unused]] const bool kKeepsNoPlans = ::setenv("MESHWRIGHT_PLAN_CACHE", "off", 0) == 0;

// Yields the processor for a moment between two looks at a condition; every loop that uses it has a
// deadline.
void Pause() { (void)poll(nullptr, 0, 20); }

// "127.0.0.1:<port>" from what the controller prints once it listens; "" before.
std::string ListeningAddress(const std::string& log) {
  constexpr std::string_view kSaid = "controller listens on ";
  const size_t at = log.find(kSaid);
  const size_t end = log.find(',', at);
  if (at == std::string::npos || end == std::string::npos) return "";
  return log.substr(at + kSaid.size(), end - at - kSaid.size());
}

}  // namespace

TinyOptions ByteOptions() {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.vocabulary = 256;
  options.layers = 4;
  options.batch = 8;
  options.lr = 1e-3;
  return options;
}

ir::JobRequest ByteJob(int data, int tensor, int pipeline, int64_t steps,
                       const TinyOptions& options) {
  ir::JobRequest job = MakeTinyJob(options);
  job.train.steps = steps;
  job.train.validation_batches = 1;
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  return job;
}

Result<ProcessOutput> RunMeshwright(const std::vector<std::string>& args,
                                    const std::vector<std::pair<std::string, std::string>>& env,
                                    int64_t timeout_ms) {
  SubprocessOptions options;
  options.args = {MESHWRIGHT_BINARY};
  options.args.insert(options.args.end(), args.begin(), args.end());
  options.env = env;
  options.death_signal = SIGKILL;
  return RunProcess(options, timeout_ms);
}

std::string SampleText(size_t bytes) {
  static constexpr const char* kWords[] = {"mesh",  "device", "the",   "of",     "shard",
                                           "stage", "and",    "plan",  "worker", "a",
                                           "to",    "runs",   "sends", "tensor"};
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    text += kWords[PhiloxBits(3, 1, 0, i) % std::size(kWords)];
    text += i % 12 == 11 ? ".\n" : " ";
  }
  return text;
}

Result<std::unique_ptr<ProcessCluster>> ProcessCluster::Start(ProcessClusterOptions options) {
  auto cluster = std::make_unique<ProcessCluster>();
  cluster->options_ = std::move(options);
  MW_ASSIGN_OR_RETURN(TempDir dir, TempDir::Make("mw-e2e"));
  cluster->dir_ = std::make_unique<TempDir>(std::move(dir));
  MW_TRY(MakeDirs(cluster->temp_dir()));
  cluster->options_.env.emplace_back("TMPDIR", cluster->temp_dir());
  MW_TRY(cluster->StartController(0));
  for (int i = 0; i < cluster->options_.workers; ++i) MW_TRY(cluster->StartWorker(i));
  MW_TRY(cluster->WaitReady(cluster->options_.workers));
  return cluster;
}

ProcessCluster::~ProcessCluster() { (void)Stop(); }

Status ProcessCluster::StartController(int port) {
  SubprocessOptions options;
  const std::string log = dir_->File("controller.log");
  options.args = {MESHWRIGHT_BINARY, "controller", "--port",      std::to_string(port),
                  "--metrics-port",  "0",          "--state-dir", state_dir()};
  options.args.insert(options.args.end(), options_.controller_args.begin(),
                      options_.controller_args.end());
  options.env = options_.env;
  options.stdout_to = OutputTo::File(log);
  options.stderr_to = OutputTo::File(log);
  options.death_signal = SIGKILL;
  MW_ASSIGN_OR_RETURN(controller_, Subprocess::Start(options));
  client::Client::Options connect;
  for (const auto& [name, value] : options_.env) {
    if (name == "MESHWRIGHT_TOKEN") connect.token = value;
  }
  const Deadline deadline = Deadline::After(kStartMs);
  while (true) {
    const std::string text = ReadFile(log).value_or("");
    if (address_.empty()) address_ = ListeningAddress(text);
    connect.address = address_;
    Status status = Unavailable("the controller does not listen");
    if (!address_.empty()) {
      auto client = client::Client::Connect(connect);
      if (client.has_value()) {
        client_ = std::move(*client);
        return OkStatus();
      }
      status = client.error();
    }
    if (deadline.expired() || !controller_->Running()) return status.WithContext(text);
    Pause();
  }
}

Status ProcessCluster::RestartController() {
  const size_t colon = address_.rfind(':');
  return StartController(std::stoi(address_.substr(colon + 1)));
}

Status ProcessCluster::StartWorker(int index) {
  SubprocessOptions options;
  const std::string name = WorkerName(index);
  // One of one's own is that command already.
  options.args = {options_.worker_binary};
  if (options_.worker_binary.empty()) options.args = {MESHWRIGHT_BINARY, "worker"};
  options.args.insert(options.args.end(), {"--address", address_, "--device", options_.device,
                                           "--name", name, "--metrics-port", "0"});
  options.args.insert(options.args.end(), options_.worker_args.begin(), options_.worker_args.end());
  options.env = options_.env;
  options.stdout_to = OutputTo::File(dir_->File(name + ".log"));
  options.stderr_to = OutputTo::File(dir_->File(name + ".log"));
  options.death_signal = SIGKILL;
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> worker, Subprocess::Start(options));
  workers_.push_back(std::move(worker));
  return OkStatus();
}

Status ProcessCluster::WaitReady(int workers) {
  const Deadline deadline = Deadline::After(kStartMs);
  while (true) {
    MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> infos, client_->Workers());
    const auto ready = std::count_if(infos.begin(), infos.end(),
                                     [](const auto& info) { return info.state == "READY"; });
    if (ready >= workers) return OkStatus();
    if (deadline.expired())
      return DeadlineExceeded(fmt::format("{} of {} workers are ready", ready, workers));
    Pause();
  }
}

Result<int64_t> ProcessCluster::Submit(ir::JobRequest job, const std::string& text) {
  const std::string path = dir_->File("data.txt");
  MW_TRY(WriteFileAtomic(path, text));
  MW_ASSIGN_OR_RETURN(job.data.blob, client_->UploadFile(path));
  return client_->Submit(job);
}

Result<ProcessCluster::Followed> ProcessCluster::Follow(int64_t id) {
  Followed followed;
  MW_ASSIGN_OR_RETURN(followed.info, client_->Watch(
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

Status ProcessCluster::RunUntil(int64_t id, int64_t steps) {
  MW_ASSIGN_OR_RETURN(
      const client::JobInfo info,
      client_->Watch(
          id, [&](const client::JobUpdate& update) { return update.info.steps_done < steps; },
          kJobMs));
  if (info.steps_done >= steps) return OkStatus();
  return FailedPrecondition(
      fmt::format("the job ended after {} steps: {}", info.steps_done, info.message));
}

std::vector<Result<ExitStatus>> ProcessCluster::Stop() {
  std::vector<Result<ExitStatus>> exits;
  for (auto& worker : workers_) {
    if (worker) exits.push_back(worker->Terminate(10'000));
  }
  workers_.clear();
  // An idle client does not answer the goodbye of the server, which then waits for a second.
  client_.reset();
  if (controller_) exits.push_back(controller_->Terminate(10'000));
  controller_.reset();
  return exits;
}

}  // namespace meshwright::testing
