// up and down: a whole cluster as real processes on this machine.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "cli/run_dir.h"

namespace meshwright::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int64_t kStopMs = 10'000;

// Starts the processes in order; whatever it started is stopped again when it does not succeed.
class ClusterStarter {
 public:
  ClusterStarter(const UpArgs& args, const GlobalArgs& global)
      : args_(args),
        global_(global),
        deadline_(SteadyClock::now() + std::chrono::milliseconds(args.timeout_ms)) {}

  Result<ClusterState> Run() {
    MW_TRY(MakeDirs(args_.run_dir));
    MW_TRY(RefuseSecond());
    const Status started = StartAll();
    if (started.ok()) return state_;
    const Status stopped = StopProcesses(state_.processes, kStopMs, [](const std::string&) {});
    if (!stopped.ok()) fmt::print(stderr, "error: {}\n", stopped.message());
    MW_TRY(RemoveAll(ClusterFile(args_.run_dir)));
    return Fail(started);
  }

 private:
  int64_t LeftMs() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - SteadyClock::now())
            .count();
    return std::max<int64_t>(left, 0);
  }

  Status RefuseSecond() const {
    const auto old = LoadCluster(args_.run_dir);
    if (!old) return old.error().code() == StatusCode::kNotFound ? OkStatus() : old.error();
    for (const ClusterProcess& process : old->processes) {
      if (!IsAlive(process)) continue;
      return AlreadyExists(fmt::format(
          "a cluster runs in {} ({} has pid {}); stop it with `meshwright down --dir {}`",
          args_.run_dir, process.name, process.pid, args_.run_dir));
    }
    return OkStatus();
  }

  Status StartAll() {
    MW_TRY(StartController());
    std::vector<Daemon> workers;
    for (int i = 0; i < args_.workers; ++i) {
      MW_ASSIGN_OR_RETURN(Daemon worker, StartWorker(i));
      workers.push_back(std::move(worker));
    }
    for (Daemon& worker : workers) MW_TRY(WaitReady(worker, LeftMs()));
    return WaitForMembership();
  }

  Status StartController() {
    DaemonSpec spec = Spec("controller");
    spec.args = {"controller",
                 "--port",
                 std::to_string(args_.port),
                 "--metrics-port",
                 std::to_string(args_.metrics_port),
                 "--state-dir",
                 args_.run_dir + "/state"};
    AddGlobal(spec);
    MW_ASSIGN_OR_RETURN(Daemon controller, Start(spec));
    MW_ASSIGN_OR_RETURN(const std::string ports, WaitReady(controller, LeftMs()));
    const std::vector<std::string> words = Split(ports, ' ');
    if (words.size() != 2) return Internal(fmt::format("the controller announced '{}'", ports));
    state_.address = "127.0.0.1:" + words[0];
    state_.metrics_address = "127.0.0.1:" + words[1];
    return SaveCluster(args_.run_dir, state_);
  }

  Result<Daemon> StartWorker(int index) {
    DaemonSpec spec = Spec(fmt::format("worker-{}", index));
    spec.args = {"worker",
                 "--name",
                 spec.name,
                 "--address",
                 state_.address,
                 "--devices",
                 std::to_string(args_.devices_per_worker),
                 "--threads-per-device",
                 std::to_string(args_.threads_per_device),
                 "--transport",
                 args_.transport,
                 "--cache-dir",
                 args_.run_dir + "/cache-" + std::to_string(index)};
    AddGlobal(spec);
    return Start(spec);
  }

  DaemonSpec Spec(const std::string& name) const {
    return {name, fmt::format("{}/{}.log", args_.run_dir, name), {}};
  }

  void AddGlobal(DaemonSpec& spec) const {
    spec.args.insert(spec.args.end(), {"--log-level", global_.log_level});
    if (!global_.token_file.empty())
      spec.args.insert(spec.args.end(), {"--token-file", global_.token_file});
  }

  // The pid is on disk before anything else happens, so that `down` finds it whatever comes next.
  Result<Daemon> Start(const DaemonSpec& spec) {
    MW_ASSIGN_OR_RETURN(Daemon daemon, StartDaemon(spec));
    state_.processes.push_back({spec.name, daemon.pid, StartTicks(daemon.pid)});
    MW_TRY(SaveCluster(args_.run_dir, state_));
    return daemon;
  }

  // Workers are up; now the controller has to know all of them.
  Status WaitForMembership() const {
    GlobalArgs global = global_;
    global.address = state_.address;
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, Connect(global));
    while (true) {
      MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, client->Workers());
      const auto ready =
          std::count_if(workers.begin(), workers.end(),
                        [](const client::WorkerInfo& worker) { return worker.state == "READY"; });
      if (ready >= args_.workers) return OkStatus();
      for (const ClusterProcess& process : state_.processes) {
        if (IsAlive(process)) continue;
        const std::string log = fmt::format("{}/{}.log", args_.run_dir, process.name);
        return FailedPrecondition(
            fmt::format("{} ended; the end of {}:\n{}", process.name, log, LastLines(log, 10)));
      }
      if (LeftMs() == 0) {
        return DeadlineExceeded(
            fmt::format("{} of {} workers are ready after {} ms; logs are in {}", ready,
                        args_.workers, args_.timeout_ms, args_.run_dir));
      }
      ::poll(nullptr, 0, 20);  // membership has no event for clients: ask again
    }
  }

  const UpArgs& args_;
  const GlobalArgs& global_;
  const SteadyClock::time_point deadline_;
  ClusterState state_;
};

void PrintNext(const UpArgs& args, const ClusterState& state) {
  fmt::print("cluster is ready: controller {}, {} workers x {} devices, logs in {}\n\n",
             state.address, args.workers, args.devices_per_worker, args.run_dir);
  fmt::print("  export MESHWRIGHT_ADDRESS={}\n", state.address);
  fmt::print("  meshwright status\n");
  fmt::print("  meshwright submit examples/gpt-bytes.toml\n");
  fmt::print(
      "  meshwright worker --address {}          # one more worker, here or on another host\n",
      state.address);
  fmt::print("  curl -s http://{}/metrics | grep meshwright_\n", state.metrics_address);
  fmt::print("  meshwright down --dir {}\n", args.run_dir);
}

}  // namespace

int RunUp(const UpArgs& args, const GlobalArgs& global) {
  const auto state = ClusterStarter(args, global).Run();
  if (!state) return ReportError(state.error());
  if (global.json) {
    fmt::print("{{\"address\":\"{}\",\"metrics_address\":\"{}\"}}\n", state->address,
               state->metrics_address);
  } else {
    PrintNext(args, *state);
  }
  return kExitOk;
}

int RunDown(const DownArgs& args) {
  const auto state = LoadCluster(args.run_dir);
  if (!state) {
    if (state.error().code() != StatusCode::kNotFound) return ReportError(state.error());
    fmt::print("nothing runs in {}\n", args.run_dir);
    return kExitOk;
  }
  const Status stopped = StopProcesses(state->processes, args.timeout_ms,
                                       [](const std::string& line) { fmt::print("{}\n", line); });
  if (!stopped.ok()) return ReportError(stopped);
  const Status removed = RemoveAll(ClusterFile(args.run_dir));
  return removed.ok() ? kExitOk : ReportError(removed);
}

}  // namespace meshwright::cli
