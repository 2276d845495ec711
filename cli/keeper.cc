#include "cli/keeper.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kSettledMs = 10'000;  // who has lived so long is started again at once
constexpr int64_t kFirstDelayMs = 1000;
constexpr int64_t kMostDelayMs = 30'000;
constexpr int64_t kLookAgainMs = 60'000;

// SIGTERM, SIGINT and SIGCHLD as something to wait for; the keeper has one thread.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&set_, number);
    ::sigprocmask(SIG_BLOCK, &set_, nullptr);
  }
  // The next one; nothing after so long.
  std::optional<int> Wait(int64_t timeout_ms) const {
    const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000};
    const int number = ::sigtimedwait(&set_, nullptr, &timeout);
    return number > 0 ? std::optional(number) : std::nullopt;
  }

 private:
  sigset_t set_;
};

class Keeper {
 public:
  explicit Keeper(KeptCommand command) : command_(std::move(command)) {}

  Result<int> Run() {
    std::vector<std::string> args = command_.args;
    args.insert(args.end(), command_.first_args.begin(), command_.first_args.end());
    std::vector<int> fds = command_.first_fds;
    RestartPolicy policy;
    while (true) {
      MW_ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> daemon, Start(args, fds));
      // Its end is to close what its starter waits at.
      for (const int fd : std::exchange(fds, {})) ::close(fd);
      args = command_.args;
      const int64_t begin_ms = clock_.NowMs();
      MW_ASSIGN_OR_RETURN(const ExitStatus exit, AwaitEnd(*daemon));
      const auto delay_ms = policy.Ended(exit, clock_.NowMs() - begin_ms);
      if (stopping_ || !delay_ms) return exit.signal == 0 ? exit.code : 128 + exit.signal;
      LogWarn(fmt::format("the process ended: {}; it is started again{}", exit.ToString(),
                          *delay_ms > 0 ? fmt::format(" in {} s", *delay_ms / 1000) : ""));
      if (!Sleep(*delay_ms)) return kExitOk;
    }
  }

 private:
  static Result<std::unique_ptr<Subprocess>> Start(const std::vector<std::string>& args,
                                                   const std::vector<int>& fds) {
    SubprocessOptions options;
    options.args = args;
    options.keep_fds = fds;
    options.death_signal = SIGKILL;
    return Subprocess::Start(options);
  }

  Result<ExitStatus> AwaitEnd(Subprocess& daemon) {
    while (true) {
      auto exit = daemon.Wait(0);
      if (exit.has_value() || exit.error().code() != StatusCode::kDeadlineExceeded) return exit;
      // The end of a daemon may have come between the two.
      const std::optional<int> number = signals_.Wait(kLookAgainMs);
      if (!number || *number == SIGCHLD) continue;
      stopping_ = true;
      (void)daemon.Signal(*number);  // else it has ended
    }
  }

  // False: the keeper is told to end.
  bool Sleep(int64_t delay_ms) {
    const Deadline deadline = Deadline::After(delay_ms, clock_);
    while (!deadline.expired()) {
      const std::optional<int> number = signals_.Wait(deadline.remaining_ms());
      if (number && *number != SIGCHLD) return false;
    }
    return true;
  }

  const KeptCommand command_;
  const Signals signals_;
  const Clock& clock_ = SystemClock();
  bool stopping_ = false;
};

}  // namespace

std::optional<int64_t> RestartPolicy::Ended(const ExitStatus& exit, int64_t lived_ms) {
  const bool settled = lived_ms >= kSettledMs;
  const bool refused = exit.signal == 0 && (exit.code == kExitUsage || (first_ && !settled));
  first_ = false;
  if (exit.ok() || refused) return std::nullopt;
  const int64_t delay_ms = settled ? 0 : delay_ms_;
  delay_ms_ = std::clamp(2 * delay_ms, kFirstDelayMs, kMostDelayMs);
  return delay_ms;
}

std::optional<KeptCommand> ParseKeep(const std::vector<std::string>& args) {
  // "keep PROGRAM COMMAND ... --ready-fd N --start-fd N", as StartDaemon writes it.
  constexpr size_t kLast = 4;
  if (args.size() < 3 + kLast || args[0] != kKeepMode) return std::nullopt;
  KeptCommand command;
  command.args = {args.begin() + 1, args.end() - kLast};
  command.first_args = {args.end() - kLast, args.end()};
  if (command.first_args[0] != "--ready-fd" || command.first_args[2] != "--start-fd") {
    return std::nullopt;
  }
  for (const size_t at : {size_t{1}, size_t{3}}) {
    int fd = -1;
    const std::string& text = command.first_args[at];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
    if (error != std::errc() || end != text.data() + text.size() || fd < 3) return std::nullopt;
    command.first_fds.push_back(fd);
  }
  return command;
}

std::optional<int> RunIfKeeper(const std::vector<std::string>& args) {
  std::optional<KeptCommand> command = ParseKeep(args);
  if (!command) return std::nullopt;
  (void)::prctl(PR_SET_NAME, "mw-keeper");
  const Result<int> code = Keeper(std::move(*command)).Run();
  if (code.has_value()) return *code;
  LogError(code.error().message());
  return kExitJobFailed;
}

}  // namespace meshwright::cli
