#include "cli/daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/file.h"
#include "base/os_error.h"
#include "base/text.h"

namespace meshwright::cli {
namespace {

constexpr int kReadyFd = 3;

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

Result<std::string> OwnBinary() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return Fail(OsError(errno, "cannot find the path of this program"));
  return std::string(path, static_cast<size_t>(length));
}

void Configure(SpawnSetup& setup, const std::string& log_path, int ready_write) {
  ::posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&setup.actions, STDOUT_FILENO, log_path.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(&setup.actions, STDOUT_FILENO, STDERR_FILENO);
  ::posix_spawn_file_actions_adddup2(&setup.actions, ready_write, kReadyFd);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&setup.attributes, &none);
  ::posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
}

}  // namespace

Result<Daemon> StartDaemon(const DaemonSpec& spec) {
  MW_ASSIGN_OR_RETURN(const std::string binary, OwnBinary());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(OsError(errno, "cannot make a pipe"));
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  std::vector<std::string> args = {binary};
  args.insert(args.end(), spec.args.begin(), spec.args.end());
  args.insert(args.end(), {"--ready-fd", std::to_string(kReadyFd)});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  SpawnSetup setup;
  Configure(setup, spec.log_path, write_end.get());
  Daemon daemon{spec.name, spec.log_path, 0, std::move(read_end)};
  const int error = ::posix_spawn(&daemon.pid, binary.c_str(), &setup.actions, &setup.attributes,
                                  argv.data(), environ);
  if (error != 0)
    return Fail(OsError(error, fmt::format("cannot start {} ({})", spec.name, binary)));
  return daemon;
}

Result<std::string> WaitReady(Daemon& daemon, int64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::string line;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd fd = {daemon.ready.get(), POLLIN, 0};
    const int ready = ::poll(&fd, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return Fail(DeadlineExceeded(fmt::format("{} was not ready within {} ms; its log: {}",
                                               daemon.name, timeout_ms, daemon.log_path)));
    }
    char buffer[256];
    const ssize_t bytes = ::read(daemon.ready.get(), buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    line.append(buffer, static_cast<size_t>(bytes));
    if (line.back() == '\n') return std::string(Trim(line));
  }
  ::waitpid(daemon.pid, nullptr, WNOHANG);
  return Fail(
      FailedPrecondition(fmt::format("{} ended while it started; the end of {}:\n{}", daemon.name,
                                     daemon.log_path, LastLines(daemon.log_path, 10))));
}

void AnnounceReady(int ready_fd, const std::string& line) {
  if (ready_fd < 0) return;
  const std::string text = line + "\n";
  // A starter that went away does not matter to the daemon.
  [[maybe_unused]] const ssize_t written = ::write(ready_fd, text.data(), text.size());
  ::close(ready_fd);
}

std::string LastLines(const std::string& path, int count) {
  const auto text = ReadFile(path);
  if (!text) return "";
  size_t begin = text->size();
  if (begin > 0 && (*text)[begin - 1] == '\n') --begin;
  for (int i = 0; i < count && begin != std::string::npos; ++i) {
    if (begin == 0) return *text;
    begin = text->rfind('\n', begin - 1);
  }
  return begin == std::string::npos ? *text : text->substr(begin + 1);
}

}  // namespace meshwright::cli
