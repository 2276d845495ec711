#include "worker/output_tail.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace meshwright::worker {
namespace {

// A longer line is cut into several.
constexpr size_t kMostLineBytes = 2048;

}  // namespace

OutputTail::OutputTail(UniqueFd pipe, std::string process, std::function<void()> ended)
    : pipe_(std::move(pipe)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      process_(std::move(process)),
      on_end_(std::move(ended)),
      reader_([this] { ReadLoop(); }) {}

OutputTail::~OutputTail() {
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  reader_.join();
}

void OutputTail::WorksFor(int64_t job) {
  const MutexLock lock(mutex_);
  job_ = job;
}

std::string OutputTail::Take(int64_t timeout_ms) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const MutexLock lock(mutex_);
  while (!ended_ && changed_.WaitUntil(mutex_, due)) {
  }
  std::string text;
  for (const std::string& line : lines_) text += (text.empty() ? "" : "\n") + line;
  return text;
}

void OutputTail::ReadLoop() {
  std::array<char, 4096> block;
  std::string line;
  while (true) {
    std::array<pollfd, 2> fds = {{{pipe_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) break;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    const ssize_t got = ::read(pipe_.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (const char c : std::string_view(block.data(), static_cast<size_t>(got))) {
      if (c != '\n') line.push_back(c);
      if (c != '\n' && line.size() < kMostLineBytes) continue;
      Add(line);
      line.clear();
    }
  }
  if (!line.empty()) Add(line);
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  on_end_();
}

void OutputTail::Add(std::string_view line) {
  LogSource source{process_, 0};
  {
    const MutexLock lock(mutex_);
    source.job = job_;
  }
  LogForeignLine(source, line);
  const MutexLock lock(mutex_);
  lines_.emplace_back(line);
  bytes_ += line.size() + 1;
  while (lines_.size() > kMostLines || bytes_ > kMostBytes) {
    bytes_ -= lines_.front().size() + 1;
    lines_.pop_front();
  }
}

}  // namespace meshwright::worker
