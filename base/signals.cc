#include "base/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>

#include "base/check.h"
#include "base/clock.h"
#include "base/os_error.h"

namespace meshwright {
namespace {

constexpr std::array<int, 2> kStopSignals = {SIGTERM, SIGINT};

// Write end of the pipe, -1 when nothing is installed. Read inside the handler.
std::atomic<int> write_end{-1};
std::array<struct sigaction, 2> previous_actions;

static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void OnSignal(int number) {
  const int saved_errno = errno;
  const auto byte = static_cast<unsigned char>(number);
  // A full pipe means that nobody has looked at thousands of signals: one more adds nothing.
  [[maybe_unused]] const ssize_t wrote = write(write_end.load(), &byte, 1);
  errno = saved_errno;
}

}  // namespace

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

Result<ShutdownSignal> ShutdownSignal::Install() {
  MW_CHECK(write_end.load() == -1) << "a second ShutdownSignal while one is alive";
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return Fail(OsError(errno, "pipe for shutdown signals"));
  }
  write_end.store(ends[1]);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    sigaction(kStopSignals[i], &action, &previous_actions[i]);
  }
  IgnoreBrokenPipes();
  return ShutdownSignal(UniqueFd(ends[0]));
}

ShutdownSignal::~ShutdownSignal() {
  if (!read_end_.valid()) return;
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    sigaction(kStopSignals[i], &previous_actions[i], nullptr);
  }
  close(write_end.exchange(-1));
}

ShutdownSignal::ShutdownSignal(ShutdownSignal&& other) noexcept = default;

std::optional<int> ShutdownSignal::Wait(int64_t timeout_ms) {
  const Deadline deadline = Deadline::After(timeout_ms);
  for (;;) {
    unsigned char byte = 0;
    if (read(read_end_.get(), &byte, 1) == 1) return byte;
    const int64_t left_ms = deadline.remaining_ms();
    if (left_ms == 0) return std::nullopt;
    pollfd poll_fd{read_end_.get(), POLLIN, 0};
    poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left_ms, INT_MAX)));
  }
}

}  // namespace meshwright
