#include "tests/e2e/control/local_cluster.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/philox.h"
#include "models/gpt2.h"

namespace meshwright::testing {

Result<std::unique_ptr<LocalCluster>> LocalCluster::Start(LocalClusterOptions options) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  cluster->options_ = std::move(options);
  MW_ASSIGN_OR_RETURN(TempDir dir, TempDir::Make("meshwright-test"));
  cluster->dir_ = std::make_unique<TempDir>(std::move(dir));
  MW_TRY(cluster->StartServer(0));
  for (int i = 0; i < cluster->options_.workers; ++i) {
    MW_TRY(cluster->AddWorker(fmt::format("w{}", i)));
  }
  client::Client::Options client;
  client.address = fmt::format("127.0.0.1:{}", cluster->port_);
  client.token = cluster->options_.token;
  MW_ASSIGN_OR_RETURN(cluster->client_, client::Client::Connect(client));
  MW_TRY(cluster->WaitForState("READY", cluster->options_.workers));
  return cluster;
}

LocalCluster::~LocalCluster() {
  agents_.clear();
  server_.reset();
}

Status LocalCluster::StartServer(int port) {
  controller::ServerOptions options;
  options.port = port;
  options.metrics_port = 0;
  options.state_dir = state_dir();
  options.token = options_.token;
  options.limits = options_.limits;
  options.heartbeat_ms = 200;
  options.infeasible_grace_ms = 500;
  MW_ASSIGN_OR_RETURN(server_, controller::StartServer(options, options_.hooks));
  port_ = server_->port();
  return OkStatus();
}

Status LocalCluster::RestartServer() {
  const int port = port_;
  server_.reset();
  return StartServer(port);
}

worker::AgentOptions LocalCluster::AgentOptionsFor(const std::string& name) const {
  worker::AgentOptions options;
  options.controller = fmt::format("127.0.0.1:{}", port_);
  options.name = name;
  options.devices = options_.devices_per_worker;
  options.token = options_.token;
  options.memory_bytes = int64_t{1} << 30;
  options.host_actors = options_.host_actors;
  return options;
}

Status LocalCluster::AddWorker(const std::string& name) {
  MW_ASSIGN_OR_RETURN(auto agent, worker::Agent::Start(AgentOptionsFor(name)));
  agents_.push_back(std::move(agent));
  return OkStatus();
}

Status LocalCluster::WaitForState(const std::string& state, int workers) {
  // The client has no push for workers: ask again every few milliseconds, without holding anything.
  std::mutex mutex;
  std::condition_variable never;
  const Deadline deadline = Deadline::After(10'000);
  int found = 0;
  while (!deadline.expired()) {
    MW_ASSIGN_OR_RETURN(const auto infos, client_->Workers());
    found = 0;
    for (const client::WorkerInfo& info : infos) found += info.state == state ? 1 : 0;
    if (found == workers) return OkStatus();
    std::unique_lock lock(mutex);
    never.wait_for(lock, std::chrono::milliseconds(10));
  }
  return DeadlineExceeded(fmt::format("{} workers are {}, not {}", found, state, workers));
}

Result<int64_t> LocalCluster::Submit(ir::JobRequest job, const std::string& text) {
  const std::string path = File("data.txt");
  MW_TRY(WriteFileAtomic(path, text));
  MW_ASSIGN_OR_RETURN(job.data.blob, client_->UploadFile(path));
  return client_->Submit(job);
}

ir::JobRequest ByteJob(int64_t data, int64_t pipeline, int64_t steps) {
  models::Gpt2Config config;
  config.vocabulary = 128;
  config.positions = 16;
  config.width = 16;
  config.layers = 2;
  config.heads = 2;
  ir::TrainSpec train;
  train.global_batch = 4;
  train.sequence = 16;
  train.steps = steps;
  train.seed = 7;
  train.validation_batches = 2;
  ir::ParallelSpec parallel;
  parallel.data = data;
  parallel.pipeline = pipeline;
  auto job = client::JobBuilder("bytes")
                 .Train(train)
                 .DType(ir::DType::kF64)
                 .Parallel(parallel)
                 .ConfigText("[job]\nname = \"bytes\"\n")
                 .Build(models::MakeGpt2(config));
  MW_CHECK(job.has_value()) << job.error();
  return std::move(*job);
}

std::string SampleBytes(size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    text += static_cast<char>('a' + PhiloxBits(1, 2, 3, text.size()) % 26);
  }
  return text;
}

}  // namespace meshwright::testing
