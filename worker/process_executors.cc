#include "worker/process_executors.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "worker/process_mesh.h"

namespace meshwright::worker {
namespace {

// A job that starts has the machine's cores for itself first.
constexpr int64_t kSpareDelayMs = 500;
constexpr int64_t kExitMs = 200;
// Spares that die are not started again in a hurry.
constexpr int64_t kSpareAgainMs = 10'000;

ExecutorSettings SettingsOf(const HostResources& resources, const ExecutorOptions& options) {
  ExecutorSettings settings;
  settings.worker = resources.worker;
  settings.devices = resources.devices;
  settings.threads_per_device = resources.threads_per_device;
  settings.cores = resources.cores;
  settings.memory_bytes = resources.memory_bytes;
  settings.host_link_bytes_per_s = resources.host_link_bytes_per_s;
  settings.scratch = resources.scratch;
  if (resources.gpus.driver != nullptr) settings.gpus = resources.gpus.indices;
  settings.gpu_drain_timeout_ms = resources.gpu_drain_timeout_ms;
  settings.transport = resources.transport;
  settings.collective_timeout_ms = resources.collective_timeout_ms;
  if (resources.roots != nullptr) settings.data_roots = resources.roots->all();
  if (resources.checkpoint_roots != nullptr) {
    settings.checkpoint_roots = resources.checkpoint_roots->all();
  }
  settings.host_actors = resources.host_actors;
  settings.controller = options.controller;
  settings.token = options.token;
  settings.tls_dir = options.tls_dir;
  settings.log_level = LowestLogLevel();
  return settings;
}

}  // namespace

ProcessExecutors::ProcessExecutors(HostResources resources, ExecutorOptions options)
    : resources_(std::move(resources)),
      options_(std::move(options)),
      settings_(SettingsOf(resources_, options_)),
      lost_devices_(resources_.device_lost) {
  MW_CHECK(!options_.command.empty()) << "no command starts an executor";
  (void)thread_.Post([this] { MakeSpare(); });
}

ProcessExecutors::~ProcessExecutors() {
  // On the thread that started it: it must not outlive that one, nor be started behind this.
  (void)thread_.Post([this] { (void)TakeSpare(); });
  thread_.Stop();
}

std::shared_ptr<RunningMesh> ProcessExecutors::Start(MeshGeneration mesh_gen, MeshEvents events) {
  const bool gpus = resources_.gpus.driver != nullptr;
  const int64_t end_ms = options_.end_ms + (gpus ? resources_.gpu_drain_timeout_ms : 0);
  auto mesh =
      std::make_shared<ProcessMesh>(resources_, mesh_gen, std::move(events), end_ms, lost_devices_);
  if (std::unique_ptr<ExecutorProcess> spare = TakeSpare()) {
    mesh->Attach(std::move(spare));
  } else {
    (void)thread_.Post([this, mesh] { mesh->Attach(StartProcess()); });
  }
  (void)thread_.PostAfter(kSpareDelayMs, [this] { MakeSpare(); });
  return mesh;
}

Result<std::unique_ptr<ExecutorProcess>> ProcessExecutors::StartProcess() {
  return ExecutorProcess::Start(options_.command, settings_, [this] { OnSilence(); });
}

std::unique_ptr<ExecutorProcess> ProcessExecutors::TakeSpare() {
  std::unique_ptr<ExecutorProcess> spare;
  {
    const MutexLock lock(mutex_);
    spare = std::move(spare_);
  }
  return spare != nullptr && spare->Running() ? std::move(spare) : nullptr;
}

void ProcessExecutors::MakeSpare() {
  {
    const MutexLock lock(mutex_);
    if (spare_ != nullptr) return;
  }
  Result<std::unique_ptr<ExecutorProcess>> started = StartProcess();
  if (!started.has_value()) {
    return LogWarn(fmt::format("no executor is started ahead: {}", started.error().message()));
  }
  const MutexLock lock(mutex_);
  spare_ = std::move(*started);
}

// Of the spare, or of one that has a mesh, which sees its end itself. The output of a process that
// exits closes a moment before its end can be seen.
void ProcessExecutors::OnSilence() {
  (void)thread_.PostAfter(kExitMs, [this] {
    std::unique_ptr<ExecutorProcess> ended;
    {
      const MutexLock lock(mutex_);
      if (spare_ == nullptr || spare_->Running()) return;
      ended = std::move(spare_);
    }
    LogWarn(fmt::format("executor {}, which waited for a mesh, {}", ended->pid(),
                        ended->End(0).ToString()));
    (void)thread_.PostAfter(kSpareAgainMs, [this] { MakeSpare(); });
  });
}

}  // namespace meshwright::worker
