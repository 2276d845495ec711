#include "cli/run_dir.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/os_error.h"
#include "base/text.h"

namespace meshwright::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

template <typename T>
bool ParseNumber(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, value).ptr == end && !text.empty();
}

int OpenPidFd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

int MillisecondsUntil(SteadyClock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

// A running process of ours, held by descriptor: its pid cannot be given to another process
// meanwhile.
struct Held {
  const ClusterProcess* process;
  UniqueFd fd;
};

void Signal(const Held& held, int number) {
  ::syscall(SYS_pidfd_send_signal, held.fd.get(), number, nullptr, 0);
}

// Waits for the ends of all until the deadline; drops those that ended.
void WaitForEnd(std::vector<Held>& running, SteadyClock::time_point deadline,
                const std::function<void(const std::string&)>& report, const char* how) {
  while (!running.empty()) {
    std::vector<pollfd> fds;
    for (const Held& held : running) fds.push_back({held.fd.get(), POLLIN, 0});
    const int ready = ::poll(fds.data(), fds.size(), MillisecondsUntil(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return;
    std::vector<Held> left;
    for (size_t i = 0; i < running.size(); ++i) {
      if (fds[i].revents == 0) {
        left.push_back(std::move(running[i]));
      } else {
        report(
            fmt::format("{} (pid {}) {}", running[i].process->name, running[i].process->pid, how));
      }
    }
    running = std::move(left);
  }
}

}  // namespace

std::string FormatCluster(const ClusterState& state) {
  std::string text;
  for (const ClusterProcess& process : state.processes) {
    text += fmt::format("process {} {} {}\n", process.name, process.pid, process.start_ticks);
  }
  if (!state.address.empty()) text += fmt::format("address {}\n", state.address);
  if (!state.metrics_address.empty()) text += fmt::format("metrics {}\n", state.metrics_address);
  return text;
}

Result<ClusterState> ParseCluster(std::string_view text) {
  ClusterState state;
  for (const std::string& line : Split(text, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> words = Split(line, ' ');
    ClusterProcess process;
    if (words.size() == 4 && words[0] == "process" && ParseNumber(words[2], process.pid) &&
        process.pid > 1 && ParseNumber(words[3], process.start_ticks)) {
      process.name = words[1];
      state.processes.push_back(std::move(process));
    } else if (words.size() == 2 && words[0] == "address") {
      state.address = words[1];
    } else if (words.size() == 2 && words[0] == "metrics") {
      state.metrics_address = words[1];
    } else {
      return Fail(
          DataLoss(fmt::format("line '{}' is damaged; stop what the other lines name, then remove "
                               "the file",
                               line)));
    }
  }
  return state;
}

std::string LockPath(const std::string& run_dir) { return run_dir + "/up.lock"; }

Result<UniqueFd> LockRunDir(const std::string& run_dir, int64_t timeout_ms) {
  Result<UniqueFd> lock = LockFile(LockPath(run_dir), timeout_ms);
  if (lock) return lock;
  const Status& error = lock.error();
  if (error.code() != StatusCode::kDeadlineExceeded) {
    return Fail(Status(error.code(), error.message() + "; choose another --dir"));
  }
  const std::string text = fmt::format(
      "another `meshwright up` or `down` works in {}; let it end, or choose another --dir",
      run_dir);
  return Fail(timeout_ms > 0 ? DeadlineExceeded(text) : AlreadyExists(text));
}

Status NoteStarter(const UniqueFd& lock) {
  ClusterState state;
  state.processes = {{"up", ::getpid(), StartTicks(::getpid())}};
  const std::string text = FormatCluster(state);
  const bool written =
      ::ftruncate(lock.get(), 0) == 0 &&
      ::pwrite(lock.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  return written ? OkStatus() : OsError(errno, "cannot write the lock of the folder");
}

std::optional<pid_t> EndStarter(const std::string& run_dir) {
  const auto text = ReadFile(LockPath(run_dir));
  if (!text) return std::nullopt;
  const auto state = ParseCluster(*text);
  if (!state || state->processes.size() != 1) return std::nullopt;
  const ClusterProcess& starter = state->processes.front();
  const Held held{&starter, UniqueFd(OpenPidFd(starter.pid))};
  if (!held.fd.valid() || !IsAlive(starter)) return std::nullopt;
  Signal(held, SIGTERM);
  return starter.pid;
}

std::string ClusterFile(const std::string& run_dir) { return run_dir + "/cluster.txt"; }

Result<ClusterState> LoadCluster(const std::string& run_dir) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(ClusterFile(run_dir)));
  auto state = ParseCluster(text);
  if (!state) return Fail(state.error().WithContext(ClusterFile(run_dir)));
  return state;
}

Status SaveCluster(const std::string& run_dir, const ClusterState& state) {
  return WriteFileAtomic(ClusterFile(run_dir), FormatCluster(state));
}

uint64_t StartTicks(pid_t pid) {
  const auto stat = ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!stat) return 0;
  // The second field is the name in parentheses and may hold anything; count from the last ')'.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return 0;
  const std::vector<std::string> fields = Split(std::string_view(*stat).substr(name_end + 2), ' ');
  uint64_t ticks = 0;
  if (fields.size() < 20 || fields[0] == "Z" || !ParseNumber(fields[19], ticks)) return 0;
  return ticks;
}

bool IsAlive(const ClusterProcess& process) {
  const uint64_t ticks = StartTicks(process.pid);
  return ticks != 0 && ticks == process.start_ticks;
}

Status StopProcesses(const std::vector<ClusterProcess>& processes, int64_t timeout_ms,
                     const std::function<void(const std::string&)>& report) {
  std::vector<Held> running;
  for (const ClusterProcess& process : processes) {
    UniqueFd fd(OpenPidFd(process.pid));
    if (fd.valid() && IsAlive(process)) running.push_back({&process, std::move(fd)});
  }
  for (const Held& held : running) Signal(held, SIGTERM);
  WaitForEnd(running, SteadyClock::now() + std::chrono::milliseconds(timeout_ms), report,
             "stopped");
  for (const Held& held : running) Signal(held, SIGKILL);
  WaitForEnd(running, SteadyClock::now() + std::chrono::seconds(10), report, "killed");
  if (running.empty()) return OkStatus();
  return DeadlineExceeded(fmt::format("{} (pid {}) does not end, not even by SIGKILL",
                                      running[0].process->name, running[0].process->pid));
}

}  // namespace meshwright::cli
