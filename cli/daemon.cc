#include "cli/daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/os_error.h"
#include "base/text.h"
#include "cli/keeper.h"

namespace meshwright::cli {
namespace {

constexpr int kReadyFd = 3;
constexpr int kStartFd = 4;
constexpr int64_t kPollMs = 50;
constexpr uintmax_t kLittleSpaceBytes = 64 << 10;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

// Above the descriptors that the child gets, so that placing one never overwrites another.
Result<UniqueFd> MoveUp(int fd) {
  const UniqueFd low(fd);
  UniqueFd high(::fcntl(fd, F_DUPFD_CLOEXEC, 16));
  if (!high.valid()) return Fail(OsError(errno, "cannot move a descriptor"));
  return high;
}

Result<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(OsError(errno, "cannot make a pipe"));
  auto read = MoveUp(ends[0]);
  auto write = MoveUp(ends[1]);
  MW_TRY(read);
  MW_TRY(write);
  return Pipe{*std::move(read), *std::move(write)};
}

Result<UniqueFd> OpenLog(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(OsError(errno, fmt::format("cannot write the log {}", path)));
  return MoveUp(fd);
}

struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
};

// Source and place of each descriptor of the child.
void Configure(SpawnSetup& setup, int log, int ready_write, int start_read) {
  ::posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&setup.actions, log, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&setup.actions, log, STDERR_FILENO);
  ::posix_spawn_file_actions_adddup2(&setup.actions, ready_write, kReadyFd);
  ::posix_spawn_file_actions_adddup2(&setup.actions, start_read, kStartFd);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&setup.attributes, &none);
  ::posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
}

}  // namespace

Result<std::string> OwnBinary() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return Fail(OsError(errno, "cannot find the path of this program"));
  return std::string(path, static_cast<size_t>(length));
}

Result<Daemon> StartDaemon(const DaemonSpec& spec) {
  std::string binary = spec.binary;
  if (binary.empty()) {
    MW_ASSIGN_OR_RETURN(binary, OwnBinary());
  }
  MW_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  MW_ASSIGN_OR_RETURN(Pipe start, MakePipe());
  MW_ASSIGN_OR_RETURN(const UniqueFd log, OpenLog(spec.log_path));
  std::vector<std::string> args = {binary};
  if (spec.kept) {
    MW_ASSIGN_OR_RETURN(const std::string own, OwnBinary());
    args = {own, kKeepMode, binary};
  }
  args.insert(args.end(), spec.args.begin(), spec.args.end());
  args.insert(args.end(),
              {"--ready-fd", std::to_string(kReadyFd), "--start-fd", std::to_string(kStartFd)});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  SpawnSetup setup;
  Configure(setup, log.get(), ready.write.get(), start.read.get());
  Daemon daemon{spec.name,
                spec.log_path,
                0,
                std::move(ready.read),
                std::move(start.write),
                FileSize(spec.log_path).value_or(0)};
  const int error = ::posix_spawn(&daemon.pid, args.front().c_str(), &setup.actions,
                                  &setup.attributes, argv.data(), environ);
  if (error != 0)
    return Fail(OsError(error, fmt::format("cannot start {} ({})", spec.name, binary)));
  return daemon;
}

void LetGo(Daemon& daemon) {
  const char go = '\n';
  // One that has ended already is noticed by WaitReady.
  [[maybe_unused]] const ssize_t written = ::write(daemon.start.get(), &go, 1);
  daemon.start = UniqueFd();
}

Result<std::string> WaitReady(Daemon& daemon, const ReadyWait& wait) {
  std::string line;
  while (true) {
    if (wait.interrupted && wait.interrupted()) return Fail(Cancelled("interrupted"));
    const int64_t left_ms = wait.deadline.remaining_ms();
    pollfd fd = {daemon.ready.get(), POLLIN, 0};
    const int ready = ::poll(&fd, 1, static_cast<int>(std::min(left_ms, kPollMs)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && left_ms > 0) continue;
    if (ready <= 0) {
      return Fail(DeadlineExceeded(
          fmt::format("{} was not ready within {} ms; raise --timeout-ms, or see its log {}",
                      daemon.name, wait.timeout_ms, daemon.log_path)));
    }
    char buffer[256];
    const ssize_t bytes = ::read(daemon.ready.get(), buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    line.append(buffer, static_cast<size_t>(bytes));
    if (line.back() == '\n') return std::string(Trim(line));
  }
  ::waitpid(daemon.pid, nullptr, WNOHANG);
  return Fail(EndedEarly(daemon, "while it started"));
}

Status AwaitStart(int start_fd) {
  if (start_fd < 0) return OkStatus();
  const UniqueFd fd(start_fd);
  char go = 0;
  ssize_t bytes = 0;
  do {
    bytes = ::read(fd.get(), &go, 1);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == 1) return OkStatus();
  return FailedPrecondition("the starter ended before it had noted this process");
}

void AnnounceReady(int ready_fd, const std::string& line) {
  if (ready_fd < 0) return;
  const std::string text = line + "\n";
  // A starter that went away does not matter to the daemon.
  [[maybe_unused]] const ssize_t written = ::write(ready_fd, text.data(), text.size());
  ::close(ready_fd);
}

std::string LastLines(const std::string& path, int count, int64_t begin_bytes) {
  const auto text = ReadFile(path);
  const auto first = static_cast<size_t>(begin_bytes);
  if (!text || first >= text->size()) return "";
  const std::string_view lines = std::string_view(*text).substr(first);
  size_t begin = lines.size();
  if (lines.back() == '\n') --begin;
  for (int i = 0; i < count && begin != std::string_view::npos; ++i) {
    if (begin == 0) return std::string(lines);
    begin = lines.rfind('\n', begin - 1);
  }
  return std::string(begin == std::string_view::npos ? lines : lines.substr(begin + 1));
}

Status EndedEarly(const Daemon& daemon, const std::string& when) {
  std::string lines = LastLines(daemon.log_path, 10, daemon.log_begin_bytes);
  lines.erase(lines.find_last_not_of('\n') + 1);
  if (lines.empty()) {
    // A full disk keeps even its own cause from the log.
    std::error_code error;
    const auto space = std::filesystem::space(daemon.log_path, error);
    lines = !error && space.available < kLittleSpaceBytes
                ? "(empty: the disk is full; free some space, or choose another --dir)"
                : "(empty)";
  }
  return FailedPrecondition(
      fmt::format("{} ended {}; the end of {}:\n{}", daemon.name, when, daemon.log_path, lines));
}

}  // namespace meshwright::cli
