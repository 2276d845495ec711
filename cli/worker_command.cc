#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/line_log.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/signals.h"
#include "cli/cache_dir.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "cli/identity_dirs.h"
#include "cli/life_signs.h"
#include "cli/listen_check.h"
#include "cli/scratch_check.h"
#include "cli/server_log.h"
#include "cli/token_in.h"
#include "data/roots.h"
#include "profile/worker_profile.h"
#include "worker/agent.h"
#include "worker/core_claims.h"
#include "worker/core_share.h"
#include "worker/executor_main.h"
#include "worker/identity.h"
#include "worker/kernel_timing.h"
#include "worker/worker_log.h"

namespace meshwright::cli {
namespace {

// GPUs, or none and one line that says why.
Result<worker::Gpus> GpusOf(const WorkerArgs& args) {
  if (args.device == "cpu") {
    if (args.gpus.empty()) return worker::Gpus();
    return Fail(InvalidArgument("--gpus names GPUs, --device cpu wants none; leave one out"));
  }
  if (!args.gpus.empty() && args.devices != 0 &&
      static_cast<size_t>(args.devices) != args.gpus.size()) {
    return Fail(InvalidArgument(fmt::format("--gpus names {} GPUs, --devices {}; leave one out",
                                            args.gpus.size(), args.devices)));
  }
  Result<worker::Gpus> gpus = worker::ClaimGpus(args.devices, args.gpus);
  if (gpus.has_value() || gpus.error().code() == StatusCode::kInvalidArgument) return gpus;
  const bool must = args.device == "cuda" || !args.gpus.empty();
  // Not kUnavailable, which scripts take for "no controller" and try again.
  if (must) {
    return Fail(FailedPrecondition("no GPU can be used: " + std::string(gpus.error().message())));
  }
  LogInfo("devices are CPU devices, no GPU can be used: " + gpus.error().message());
  return worker::Gpus();
}

// Executors have working folders of their own.
device::Scratch ScratchOf(const MemoryArgs& args) {
  device::Scratch scratch;
  if (!args.scratch_dir.empty()) scratch.folder = data::AbsolutePath(args.scratch_dir);
  scratch.limit_bytes = args.scratch_mib << 20;
  scratch.bytes_per_s = args.disk_mib_per_s << 20;
  return scratch;
}

Result<worker::AgentOptions> AgentOptionsOf(const WorkerArgs& args, const GlobalArgs& global) {
  worker::AgentOptions options;
  MW_ASSIGN_OR_RETURN(options.controller, ResolveAddress(global, config::ProcessEnvironment));
  MW_ASSIGN_OR_RETURN(options.token, LoadToken(global, config::ProcessEnvironment));
  MW_ASSIGN_OR_RETURN(const WorkerIdentity identity,
                      FindWorkerIdentity(global.tls, {options.controller, args.name, args.join},
                                         config::ProcessEnvironment));
  options.tls_dir = identity.tls_dir;
  options.name = identity.name;
  MW_ASSIGN_OR_RETURN(options.gpus, GpusOf(args));
  const bool gpus = options.gpus.driver != nullptr;
  options.devices =
      gpus ? static_cast<int>(options.gpus.indices.size()) : std::max(args.devices, 1);
  options.threads_per_device = args.threads_per_device;
  options.pin = args.pin;
  options.data_bind = args.bind;
  options.advertise = args.advertise;
  options.data_port = args.data_port;
  options.metrics_port = args.metrics_port;
  MW_ASSIGN_OR_RETURN(options.scrape_token, TokenIn("--scrape-token-file", args.scrape_token_file));
  options.cache_dir = args.cache_dir;
  for (const std::string& text : args.data_roots) {
    MW_ASSIGN_OR_RETURN(ir::DataRoot root, data::ParseRoot(text));
    options.data_roots.push_back(std::move(root));
  }
  for (const std::string& text : args.checkpoint_roots) {
    MW_ASSIGN_OR_RETURN(ir::DataRoot root, data::ParseRoot(text));
    options.checkpoint_roots.push_back(std::move(root));
  }
  options.transport = args.transport;
  options.memory_bytes = args.memory.device_mib << 20;
  options.host_link_bytes_per_s = args.memory.host_link_mib_per_s << 20;
  MW_TRY(CheckScratchDir(args.memory.scratch_dir));
  options.scratch = ScratchOf(args.memory);
  options.collective_timeout_ms = args.collective_timeout_s * 1000;
  options.executor_end_ms = args.executor_end_s * 1000;
  options.orphan_grace_ms = args.orphan_grace_s * 1000;
  options.executor_command = {"/proc/self/exe", worker::kExecutorMode};
  return options;
}

Result<std::string> DeviceProfileOf(const WorkerArgs& args, const worker::Gpus& gpus) {
  if (gpus.driver != nullptr)
    return profile::GpuProfileText(args.profile, gpus.name, gpus.memory_bytes);
  profile::ProfileRequest request;
  request.mode = args.profile;
  request.threads = args.threads_per_device;
  request.memory_bytes = args.memory.device_mib << 20;
  request.host_link_bytes_per_s = args.memory.host_link_mib_per_s << 20;
  request.disk_bytes_per_s = args.memory.disk_mib_per_s << 20;
  request.cache_dir = CacheDir("profiles");
  request.lock_path = profile::MeasuringLockPath();
  request.machine = profile::MachineDescription(BuildDescription());
  // Kept to some of the cores it cannot tell what all of them do.
  const auto cores = static_cast<int>(worker::AllowedCpus().size());
  const bool has_all = cores > 1 && cores == ::sysconf(_SC_NPROCESSORS_ONLN);
  request.measure = [host_cores = has_all ? cores : 0](int threads) {
    return worker::TimeMachine({.threads = threads, .host_cores = host_cores}, SystemClock());
  };
  request.transport = args.transport;
  request.measure_links = [&args] {
    return worker::TimeLinks({.transport = args.transport}, SystemClock());
  };
  request.measure_share = [](int threads) {
    return worker::MeasureCoreShare(threads, SystemClock());
  };
  return profile::WorkerProfileText(request);
}

constexpr int64_t kLookMs = 200;
// The controller ends what is late; that takes a moment.
constexpr int64_t kLateMs = 5000;
// Of a session that stands; the controller takes a worker for lost after 6 s (--worker-lost-ms).
constexpr int64_t kMaxSilentMs = 10'000;

// Where no folder is said, in memory. Two workers of a host may have one folder.
Result<std::shared_ptr<worker::WorkerLog>> LogOf(const WorkerArgs& args) {
  LineLogOptions options;
  options.folder = args.log_dir;
  options.name = args.name.empty() ? fmt::format("worker-{}", ::getpid()) : SafeFileName(args.name);
  options.segment_bytes = (static_cast<size_t>(args.log_mib) << 20) / options.segments;
  MW_ASSIGN_OR_RETURN(std::shared_ptr<worker::WorkerLog> log, worker::WorkerLog::Open(options));
  log->Capture();
  return log;
}

// For the service manager.
Status CheckPulse(const worker::Pulse& pulse) {
  const int64_t silent_ms = pulse.silent_ms();
  if (silent_ms <= kMaxSilentMs) return OkStatus();
  return Unavailable(fmt::format("no heartbeat has left for {} ms", silent_ms));
}

// SIGTERM is a request: its jobs are saved and moved first. What comes then, or SIGINT, ends it at
// once.
void Leave(worker::Agent& agent, ShutdownSignal& shutdown, int64_t drain_ms) {
  LogInfo(
      fmt::format("leaving: jobs that keep checkpoints are saved and moved, for at most {} s; "
                  "a second signal ends this at once",
                  drain_ms / 1000));
  agent.Drain(drain_ms);
  const Deadline deadline = Deadline::After(drain_ms + kLateMs);
  while (!deadline.expired() && !shutdown.Wait(kLookMs)) {
    if (agent.Wait(0).code() != StatusCode::kDeadlineExceeded) return;
  }
}

// Until a signal, or until the agent gives up.
Status ServeUntilEnd(worker::Agent& agent, ShutdownSignal& shutdown, LifeSigns& signs,
                     int64_t drain_ms) {
  const worker::Pulse& pulse = agent.pulse();
  std::optional<int> signal;
  while (!(signal = shutdown.Wait(signs.look_ms(kLookMs)))) {
    const bool joined = pulse.joined();
    signs.Look(joined, joined ? "has joined" : "looks for the controller",
               [&pulse] { return CheckPulse(pulse); });
    const Status state = agent.Wait(0);
    if (state.code() != StatusCode::kDeadlineExceeded) return state;
  }
  signs.Stop("leaves: it was told to stop");
  if (*signal == SIGTERM && drain_ms > 0) Leave(agent, shutdown, drain_ms);
  return OkStatus();
}

// Null: there is no certificate to keep.
std::unique_ptr<worker::IdentityKeeper> KeeperOf(const worker::AgentOptions& options) {
  if (options.tls_dir.empty()) return nullptr;
  auto keeper = std::make_unique<worker::IdentityKeeper>(
      options.tls_dir,
      [address = options.controller, folder = options.tls_dir](const std::string& request) {
        return worker::AskRenewal(address, folder, request);
      });
  keeper->Start();
  return keeper;
}

Status Serve(const WorkerArgs& args, const GlobalArgs& global, worker::HostActorOptions actors) {
  MW_TRY(AwaitStart(args.start_fd));
  MW_TRY(StartLog(global));
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<worker::WorkerLog> log, LogOf(args));
  RaiseDescriptorLimit();
  IgnoreBrokenPipes();
  MW_ASSIGN_OR_RETURN(worker::AgentOptions options, AgentOptionsOf(args, global));
  options.host_actors = std::move(actors);
  options.log = log;
  MW_TRY(CheckListen(args.bind, args.data_port, "--data-port"));
  MW_TRY(CheckListen(args.bind, args.metrics_port, "--metrics-port"));
  // Takes seconds, minutes beside other workers: a signal ends it at once, there is nothing to
  // tidy.
  MW_ASSIGN_OR_RETURN(options.device_profile, DeviceProfileOf(args, options.gpus));
  MW_ASSIGN_OR_RETURN(ShutdownSignal shutdown, ShutdownSignal::Install());
  MW_ASSIGN_OR_RETURN(Notifier notifier, Notifier::Open(config::ProcessEnvironment));
  LifeSigns signs(std::move(notifier), SystemClock());
  const std::unique_ptr<worker::IdentityKeeper> keeper = KeeperOf(options);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<worker::Agent> agent,
                      worker::Agent::Start(std::move(options)));
  AnnounceReady(args.ready_fd, std::to_string(agent->metrics_port()));
  const Status end = ServeUntilEnd(*agent, shutdown, signs, args.drain_s * 1000);
  agent->Stop();
  return end;
}

}  // namespace

int RunWorker(const WorkerArgs& args, const GlobalArgs& global, worker::HostActorOptions actors) {
  const Status status = Serve(args, global, std::move(actors));
  return status.ok() ? kExitOk : ReportError(status);
}

}  // namespace meshwright::cli
