#include "tests/e2e/process_cluster.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/clock.h"
#include "base/philox.h"
#include "base/unique_fd.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kStartMs = 30'000;

// Yields the processor for a moment between two looks at a condition; every loop that uses it has a
// deadline.
void Pause() { (void)poll(nullptr, 0, 20); }

}  // namespace

Result<int> FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Fail(Unavailable("no free port on 127.0.0.1"));
  }
  return ntohs(address.sin_port);
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
  MW_ASSIGN_OR_RETURN(const int port, FreePort());
  MW_TRY(cluster->StartController(port));
  for (int i = 0; i < cluster->options_.workers; ++i) MW_TRY(cluster->StartWorker(i));
  MW_TRY(cluster->WaitReady(cluster->options_.workers));
  return cluster;
}

ProcessCluster::~ProcessCluster() { (void)Stop(); }

Status ProcessCluster::StartController(int port) {
  address_ = fmt::format("127.0.0.1:{}", port);
  SubprocessOptions options;
  options.args = {MESHWRIGHT_BINARY, "controller", "--port",      std::to_string(port),
                  "--metrics-port",  "0",          "--state-dir", dir_->File("state")};
  options.args.insert(options.args.end(), options_.controller_args.begin(),
                      options_.controller_args.end());
  options.env = options_.env;
  options.stdout_to = OutputTo::File(dir_->File("controller.log"));
  options.stderr_to = OutputTo::File(dir_->File("controller.log"));
  options.death_signal = SIGKILL;
  MW_ASSIGN_OR_RETURN(controller_, Subprocess::Start(options));
  client::Client::Options connect;
  connect.address = address_;
  for (const auto& [name, value] : options_.env) {
    if (name == "MESHWRIGHT_TOKEN") connect.token = value;
  }
  const Deadline deadline = Deadline::After(kStartMs);
  while (true) {
    auto client = client::Client::Connect(connect);
    if (client.has_value()) {
      client_ = std::move(*client);
      return OkStatus();
    }
    if (deadline.expired() || !controller_->Running()) {
      const auto log = ReadFile(dir_->File("controller.log"));
      return client.error().WithContext(log.has_value() ? *log : "no log");
    }
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
  options.args = {MESHWRIGHT_BINARY, "--address", address_,         "worker",
                  "--name",          name,        "--metrics-port", "0"};
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

std::vector<Result<ExitStatus>> ProcessCluster::Stop() {
  std::vector<Result<ExitStatus>> exits;
  for (auto& worker : workers_) {
    if (worker) exits.push_back(worker->Terminate(10'000));
  }
  workers_.clear();
  if (controller_) exits.push_back(controller_->Terminate(10'000));
  controller_.reset();
  return exits;
}

}  // namespace meshwright::testing
