#include "base/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/os_error.h"
#include "base/text.h"

extern char** environ;

namespace meshwright {
namespace {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Fail(OsError(errno, "pipe to a child process"));
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The descriptor that the child gets as stdout or stderr, and our end when it is a pipe.
struct Output {
  UniqueFd child_end;  // invalid: inherit
  UniqueFd our_end;
};

Result<Output> OpenOutput(const OutputTo& to) {
  Output output;
  if (to.kind == OutputTo::Kind::kInherit) return output;
  if (to.kind == OutputTo::Kind::kPipe) {
    MW_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
    output.our_end = std::move(pipe.read_end);
    output.child_end = std::move(pipe.write_end);
    return output;
  }
  const std::string path = to.kind == OutputTo::Kind::kFile ? to.path : "/dev/null";
  output.child_end = UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!output.child_end.valid()) return Fail(OsError(errno, "open " + path + " for output"));
  return output;
}

// Looked up before forking: after it, only async-signal-safe calls are allowed.
Result<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  for (const std::string& folder : Split(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return Fail(NotFound(fmt::format("program '{}' is not in PATH", name)));
}

std::vector<std::string> MakeEnvironment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(changes.begin(), changes.end(),
                                      [&](const auto& change) { return change.first == name; });
    if (!replaced) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// All that the child needs between fork and exec; no allocation happens there.
struct ChildSetup {
  const char* program;
  char* const* args;
  char* const* env;
  const char* directory;  // null: stay
  int stdin_fd;
  int stdout_fd;  // -1: inherit
  int stderr_fd;
  int error_fd;  // errno goes here when exec fails
  int death_signal;
  const int* keep_fds;
  size_t keep_count;
  pid_t parent;
};

void ResetSignals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Handlers go by exec; what was ignored (SIGPIPE) would stay ignored.
  for (int number = 1; number < 32; ++number) signal(number, SIG_DFL);
}

[[noreturn]] void RunChild(const ChildSetup& setup) {
  ResetSignals();
  bool ok = setup.death_signal == 0 || prctl(PR_SET_PDEATHSIG, setup.death_signal) == 0;
  // The parent may have died before prctl.
  if (ok && setup.death_signal != 0 && getppid() != setup.parent) _exit(127);
  ok = ok && dup2(setup.stdin_fd, STDIN_FILENO) >= 0;
  ok = ok && (setup.stdout_fd < 0 || dup2(setup.stdout_fd, STDOUT_FILENO) >= 0);
  ok = ok && (setup.stderr_fd < 0 || dup2(setup.stderr_fd, STDERR_FILENO) >= 0);
  ok = ok && (setup.directory == nullptr || chdir(setup.directory) == 0);
  // Descriptors opened by libraries without O_CLOEXEC; before Linux 5.11 those stay open.
  syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
  for (size_t i = 0; ok && i < setup.keep_count; ++i)
    ok = fcntl(setup.keep_fds[i], F_SETFD, 0) == 0;
  if (ok) execve(setup.program, setup.args, setup.env);
  const int error = errno;
  [[maybe_unused]] const ssize_t wrote = write(setup.error_fd, &error, sizeof(error));
  _exit(127);
}

// Forks and waits until exec has happened (the error pipe closes) or failed (it holds errno).
Result<pid_t> ForkExec(ChildSetup setup, const std::string& what) {
  MW_ASSIGN_OR_RETURN(Pipe error_pipe, MakePipe());
  setup.error_fd = error_pipe.write_end.get();
  setup.parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Fail(OsError(errno, "fork for " + what));
  if (pid == 0) RunChild(setup);
  error_pipe.write_end.Reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(error_pipe.read_end.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got != sizeof(error)) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return Fail(OsError(error, "start " + what));
}

// Reads what is there into `text`; closes `fd` at its end.
void Drain(UniqueFd& fd, std::string& text) {
  std::array<char, 1 << 16> block;
  const ssize_t got = read(fd.get(), block.data(), block.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    fd.Reset();
  } else {
    text.append(block.data(), static_cast<size_t>(got));
  }
}

// Reads both pipes until they close. False when the deadline came first.
bool Collect(UniqueFd& out, UniqueFd& err, const Deadline& deadline, ProcessOutput& output) {
  while (out.valid() || err.valid()) {
    std::array<pollfd, 2> fds = {{{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}}};
    const int64_t left_ms = deadline.remaining_ms();
    if (left_ms == 0) return false;
    if (poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(left_ms, INT_MAX))) < 0 &&
        errno != EINTR) {
      return false;
    }
    if (fds[0].revents != 0) Drain(out, output.stdout_text);
    if (fds[1].revents != 0) Drain(err, output.stderr_text);
  }
  return true;
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal == 0) return fmt::format("exited with {}", code);
  const char* name = sigdescr_np(signal);
  return fmt::format("killed by signal {} ({})", signal, name != nullptr ? name : "?");
}

Result<std::unique_ptr<Subprocess>> Subprocess::Start(const SubprocessOptions& options) {
  if (options.args.empty()) return Fail(InvalidArgument("start a program: no arguments given"));
  const std::string what = fmt::format("'{}'", options.args[0]);
  MW_ASSIGN_OR_RETURN(const std::string program, FindProgram(options.args[0]));
  MW_ASSIGN_OR_RETURN(Output out, OpenOutput(options.stdout_to));
  MW_ASSIGN_OR_RETURN(Output err, OpenOutput(options.stderr_to));
  const UniqueFd null_input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_input.valid()) return Fail(OsError(errno, "open /dev/null"));

  std::vector<std::string> args = options.args;
  std::vector<std::string> env = MakeEnvironment(options.env);
  const std::vector<char*> arg_pointers = Pointers(args);
  const std::vector<char*> env_pointers = Pointers(env);
  ChildSetup setup{};
  setup.program = program.c_str();
  setup.args = arg_pointers.data();
  setup.env = env_pointers.data();
  setup.directory = options.directory.empty() ? nullptr : options.directory.c_str();
  setup.stdin_fd = null_input.get();
  setup.stdout_fd = out.child_end.get();
  setup.stderr_fd = err.child_end.get();
  setup.death_signal = options.death_signal;
  setup.keep_fds = options.keep_fds.data();
  setup.keep_count = options.keep_fds.size();
  MW_ASSIGN_OR_RETURN(const pid_t pid, ForkExec(setup, what));

  UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const int pid_fd_error = errno;
  std::unique_ptr<Subprocess> child(new Subprocess(pid, std::move(pid_fd)));
  if (!child->pid_fd_.valid()) {  // needs Linux 5.3; the destructor ends the child
    return Fail(OsError(pid_fd_error, fmt::format("pidfd_open for {}", what)));
  }
  child->stdout_ = std::move(out.our_end);
  child->stderr_ = std::move(err.our_end);
  return child;
}

Subprocess::~Subprocess() {
  if (exit_) return;
  kill(pid_, SIGKILL);
  (void)Reap();
}

Status Subprocess::Reap() {
  int raw = 0;
  while (waitpid(pid_, &raw, 0) < 0) {
    if (errno != EINTR) return OsError(errno, fmt::format("wait for process {}", pid_));
  }
  exit_ = WIFSIGNALED(raw) ? ExitStatus{0, WTERMSIG(raw)} : ExitStatus{WEXITSTATUS(raw), 0};
  return OkStatus();
}

Result<ExitStatus> Subprocess::Wait(int64_t timeout_ms) {
  if (exit_) return *exit_;
  const Deadline deadline = Deadline::After(timeout_ms);
  for (;;) {
    pollfd fd{pid_fd_.get(), POLLIN, 0};
    const int64_t left_ms = std::min<int64_t>(deadline.remaining_ms(), INT_MAX);
    const int ready = poll(&fd, 1, static_cast<int>(left_ms));
    if (ready > 0) {
      MW_TRY(Reap());
      return *exit_;
    }
    if (ready < 0 && errno != EINTR) return Fail(OsError(errno, "poll a child process"));
    if (deadline.expired()) {
      return Fail(
          DeadlineExceeded(fmt::format("process {} still runs after {} ms", pid_, timeout_ms)));
    }
  }
}

bool Subprocess::Running() { return !Wait(0).has_value(); }

Status Subprocess::Signal(int number) {
  if (exit_) return NotFound(fmt::format("process {} has ended: {}", pid_, exit_->ToString()));
  if (kill(pid_, number) != 0) {
    return OsError(errno, fmt::format("send signal {} to process {}", number, pid_));
  }
  return OkStatus();
}

Result<ExitStatus> Subprocess::Terminate(int64_t grace_ms) {
  if (exit_) return *exit_;
  MW_TRY(Signal(SIGTERM));
  Result<ExitStatus> exit = Wait(grace_ms);
  if (exit.has_value() || exit.error().code() != StatusCode::kDeadlineExceeded) return exit;
  MW_TRY(Signal(SIGKILL));
  MW_TRY(Reap());
  return *exit_;
}

Result<ProcessOutput> RunProcess(SubprocessOptions options, int64_t timeout_ms) {
  const Deadline deadline = Deadline::After(timeout_ms);
  options.stdout_to = OutputTo::Pipe();
  options.stderr_to = OutputTo::Pipe();
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> child, Subprocess::Start(options));
  ProcessOutput output;
  UniqueFd out = child->TakeStdout();
  UniqueFd err = child->TakeStderr();
  if (!Collect(out, err, deadline, output)) {
    return Fail(DeadlineExceeded(
        fmt::format("'{}' still runs after {} ms: killed", options.args[0], timeout_ms)));
  }
  MW_ASSIGN_OR_RETURN(output.exit, child->Wait(deadline.remaining_ms()));
  return output;
}

}  // namespace meshwright
