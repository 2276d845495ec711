// up and down: a whole cluster as real processes on this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "base/clock.h"
#include "base/file.h"
#include "base/listen_address.h"
#include "base/os_error.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "cli/next_commands.h"
#include "cli/run_dir.h"
#include "cli/scratch_check.h"
#include "data/roots.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kStopMs = 10'000;
// Of an `up` that is told to end: it stops what it started, by SIGKILL in the end.
constexpr int64_t kStarterEndMs = 2 * kStopMs;

// Workers that measure do so one after another.
int64_t ReadyMs(const UpArgs& args) {
  constexpr int64_t kMeasureMs = 10'000;
  return args.timeout_ms + (args.profile == "measure" ? args.workers * kMeasureMs : 0);
}

// Absolute, so that messages and `next commands` hold in any folder; empty: this binary.
Result<std::string> WorkerBinary(const UpArgs& args) {
  if (args.worker_binary.empty()) return std::string();
  const std::string path = data::AbsolutePath(args.worker_binary);
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) {
    return Fail(OsError(errno, fmt::format("--worker-binary {}", path)));
  }
  if (!S_ISREG(file.st_mode) || ::access(path.c_str(), X_OK) != 0) {
    return Fail(InvalidArgument(fmt::format(
        "--worker-binary {} is no program that can be run; build yours with worker::Main "
        "(docs/programs.md) and give its path",
        path)));
  }
  return path;
}

// Starts the processes in order; whatever it started is stopped again when it does not succeed or
// is interrupted.
class ClusterStarter {
 public:
  ClusterStarter(const UpArgs& args, const GlobalArgs& global, ShutdownSignal& shutdown)
      : args_(args),
        global_(global),
        shutdown_(shutdown),
        ready_ms_(ReadyMs(args)),
        deadline_(Deadline::After(ready_ms_)) {}

  Result<ClusterState> Run() {
    MW_TRY(
        LoadToken(global_, config::ProcessEnvironment));  // a bad one, before anything is started
    MW_TRY(CheckScratchDir(args_.memory.scratch_dir));
    MW_ASSIGN_OR_RETURN(worker_binary_, WorkerBinary(args_));
    MW_TRY(MakeDirs(args_.run_dir));
    MW_ASSIGN_OR_RETURN(const UniqueFd lock, LockRunDir(args_.run_dir, 0));
    MW_TRY(RefuseSecond());
    MW_TRY(NoteStarter(lock));
    Status started = StartAll();
    if (started.ok() && Interrupted()) started = Cancelled("interrupted");
    if (started.ok()) return state_;
    const Status stopped = StopProcesses(state_.processes, kStopMs, [](const std::string&) {});
    if (!stopped.ok()) {
      // The file stays: `down` can try again.
      fmt::print(stderr, "error: {}\n", stopped.message());
      return Fail(started);
    }
    MW_TRY(RemoveAll(ClusterFile(args_.run_dir)));
    return Fail(started);
  }

 private:
  bool Interrupted() {
    interrupted_ = interrupted_ || shutdown_.Wait(0).has_value();
    return interrupted_;
  }

  ReadyWait Patience() {
    return {deadline_, ready_ms_, [this] { return Interrupted(); }};
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
    for (int i = 0; i < args_.workers; ++i) MW_TRY(StartWorker(i));
    for (size_t i = 1; i < daemons_.size(); ++i) MW_TRY(WaitReady(daemons_[i], Patience()));
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
    MW_TRY(Start(spec));
    MW_ASSIGN_OR_RETURN(const std::string ports, WaitReady(daemons_.back(), Patience()));
    const std::vector<std::string> words = Split(ports, ' ');
    if (words.size() != 2) return Internal(fmt::format("the controller announced '{}'", ports));
    state_.address = "127.0.0.1:" + words[0];
    state_.metrics_address = "127.0.0.1:" + words[1];
    const std::string socket = LocalSocketIn(data::AbsolutePath(args_.run_dir + "/state"));
    worker_address_ = std::filesystem::is_socket(socket) ? "unix:" + socket : state_.address;
    return SaveCluster(args_.run_dir, state_);
  }

  Status StartWorker(int index) {
    DaemonSpec spec = Spec(fmt::format("worker-{}", index));
    spec.binary = worker_binary_;
    // A worker of one's own is that command already.
    if (spec.binary.empty()) spec.args.push_back("worker");
    spec.args.insert(spec.args.end(), {"--name",
                                       spec.name,
                                       "--address",
                                       worker_address_,
                                       "--device",
                                       args_.device,
                                       "--devices",
                                       std::to_string(args_.devices_per_worker),
                                       "--threads-per-device",
                                       std::to_string(args_.threads_per_device),
                                       "--transport",
                                       args_.transport,
                                       "--profile",
                                       args_.profile,
                                       "--cache-dir",
                                       args_.run_dir + "/cache-" + std::to_string(index),
                                       "--log-dir",
                                       args_.run_dir + "/logs",
                                       "--memory-mib",
                                       std::to_string(args_.memory.device_mib),
                                       "--host-link-mib-per-s",
                                       std::to_string(args_.memory.host_link_mib_per_s),
                                       "--scratch-mib",
                                       std::to_string(args_.memory.scratch_mib),
                                       "--disk-mib-per-s",
                                       std::to_string(args_.memory.disk_mib_per_s)});
    if (!args_.memory.scratch_dir.empty()) {
      spec.args.insert(spec.args.end(), {"--scratch-dir", args_.memory.scratch_dir});
    }
    if (args_.pin) spec.args.push_back("--pin");
    for (const std::string& root : args_.data_roots) {
      spec.args.insert(spec.args.end(), {"--data-root", root});
    }
    if (args_.data_roots.empty()) {
      spec.args.insert(spec.args.end(), {"--data-root", data::AbsolutePath(".")});
    }
    std::vector<std::string> checkpoint_roots = args_.checkpoint_roots;
    if (checkpoint_roots.empty()) {
      checkpoint_roots.push_back(data::AbsolutePath(args_.run_dir + "/checkpoints"));
    }
    for (const std::string& root : checkpoint_roots) {
      spec.args.insert(spec.args.end(), {"--checkpoint-root", root});
    }
    if (args_.device == "cuda") {
      std::vector<int> gpus(static_cast<size_t>(args_.devices_per_worker));
      std::iota(gpus.begin(), gpus.end(), index * args_.devices_per_worker);
      spec.args.insert(spec.args.end(), {"--gpus", fmt::format("{}", fmt::join(gpus, ","))});
    }
    AddGlobal(spec);
    return Start(spec);
  }

  DaemonSpec Spec(const std::string& name) const {
    return {name, fmt::format("{}/{}.log", args_.run_dir, name), {}};
  }

  void AddGlobal(DaemonSpec& spec) const {
    spec.args.insert(spec.args.end(), {"--log-level", global_.log_level});
    if (global_.log_json) spec.args.insert(spec.args.end(), {"--log-format", "json"});
    if (!global_.token_file.empty())
      spec.args.insert(spec.args.end(), {"--token-file", global_.token_file});
  }

  // The pid is on disk before the process does anything, so that `down` finds it whatever comes
  // next.
  Status Start(DaemonSpec spec) {
    if (Interrupted()) return Fail(Cancelled("interrupted"));
    spec.kept = args_.keep;
    MW_ASSIGN_OR_RETURN(Daemon daemon, StartDaemon(spec));
    state_.processes.push_back({spec.name, daemon.pid, StartTicks(daemon.pid)});
    MW_TRY(SaveCluster(args_.run_dir, state_));
    LetGo(daemon);
    daemons_.push_back(std::move(daemon));
    return OkStatus();
  }

  // Workers are up; now the controller has to know all of them.
  Status WaitForMembership() {
    GlobalArgs global = global_;
    global.address = state_.address;
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, Connect(global));
    while (true) {
      const auto workers = client->Workers();
      // First: a process that ended explains an answer that does not come.
      for (const Daemon& daemon : daemons_) {
        if (StartTicks(daemon.pid) == 0) return EndedEarly(daemon, "before it was ready");
      }
      MW_TRY(workers);
      const auto ready =
          std::count_if(workers->begin(), workers->end(),
                        [](const client::WorkerInfo& worker) { return worker.state == "READY"; });
      if (ready >= args_.workers) return OkStatus();
      if (Interrupted()) return Cancelled("interrupted");
      if (deadline_.remaining_ms() == 0) {
        return DeadlineExceeded(
            fmt::format("{} of {} workers are ready after {} ms; raise --timeout-ms, or see the "
                        "logs in {}",
                        ready, args_.workers, ready_ms_, args_.run_dir));
      }
      ::poll(nullptr, 0, 20);  // membership has no event for clients: ask again
    }
  }

  const UpArgs& args_;
  const GlobalArgs& global_;
  ShutdownSignal& shutdown_;
  const int64_t ready_ms_;
  const Deadline deadline_;
  std::string worker_binary_;  // empty: this one
  bool interrupted_ = false;
  std::vector<Daemon> daemons_;  // the controller first
  ClusterState state_;
  std::string worker_address_;  // of the controller, as workers connect
};

}  // namespace

int RunUp(const UpArgs& args, const GlobalArgs& global) {
  auto shutdown = ShutdownSignal::Install();
  if (!shutdown) return ReportError(shutdown.error());
  const auto state = ClusterStarter(args, global, *shutdown).Run();
  if (!state && state.error().code() == StatusCode::kCancelled) {
    fmt::print(stderr, "interrupted: what was started is stopped again\n");
    return kExitInterrupted;
  }
  if (!state) return ReportError(state.error());
  if (global.json) {
    fmt::print("{{\"address\":\"{}\",\"metrics_address\":\"{}\"}}\n", state->address,
               state->metrics_address);
  } else {
    fmt::print("cluster is ready: controller {}, {} workers x {} devices, logs in {}\n\n{}",
               state->address, args.workers, args.devices_per_worker, args.run_dir,
               NextCommands(args, global, *state));
  }
  return kExitOk;
}

namespace {

// An `up` that still waits for its processes is told to end, and stops them itself.
Result<UniqueFd> TakeRunDir(const DownArgs& args) {
  Result<UniqueFd> lock = LockRunDir(args.run_dir, 0);
  if (lock || lock.error().code() != StatusCode::kAlreadyExists) return lock;
  if (const auto pid = EndStarter(args.run_dir)) {
    fmt::print("`meshwright up` (pid {}) was starting it and is told to end\n", *pid);
    return LockRunDir(args.run_dir, args.timeout_ms + kStarterEndMs);
  }
  return LockRunDir(args.run_dir, std::max<int64_t>(args.timeout_ms, 1));
}

Result<int> Down(const DownArgs& args) {
  UniqueFd lock;
  // Before anything is read: an `up` that has the lock changes it. Folders without one are not
  // written to.
  if (FileExists(LockPath(args.run_dir)) || FileExists(ClusterFile(args.run_dir))) {
    MW_ASSIGN_OR_RETURN(lock, TakeRunDir(args));
  }
  const auto state = LoadCluster(args.run_dir);
  if (!state) {
    if (state.error().code() != StatusCode::kNotFound) return Fail(state.error());
    fmt::print("nothing runs in {}\n", args.run_dir);
    return kExitOk;
  }
  MW_TRY(StopProcesses(state->processes, args.timeout_ms,
                       [](const std::string& line) { fmt::print("{}\n", line); }));
  MW_TRY(RemoveAll(ClusterFile(args.run_dir)));
  return kExitOk;
}

}  // namespace

int RunDown(const DownArgs& args) {
  const Result<int> code = Down(args);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
