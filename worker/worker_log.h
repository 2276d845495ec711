// WorkerLog: the lines of a worker's daemon and of its executors, kept within bounded room, told to
// the controller as they come, and given out in pieces.
//
// What the controller is told outlives this host: lines of level info and above, as many as fit.
// Where more come between two heartbeats than a message takes, the oldest of the lowest level are
// left out, and how many they were is said.
//
// Thread rule: thread-safe; pieces are read on a thread of its own. It must not log. Ownership: the
// log's sink while it lives, where Capture() was called.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/executor.h"
#include "base/line_log.h"
#include "base/log.h"
#include "base/mutex.h"
#include "proto/messages.h"

namespace meshwright::worker {

class WorkerLog {
 public:
  static constexpr size_t kMostWaiting = 512;                 // lines for the controller
  static constexpr size_t kMostNewsBytes = size_t{32} << 10;  // of a message, about
  static constexpr int kMostAsks = 16;                        // of pieces at once

  // Errors: LineLog::Open's.
  static Result<std::unique_ptr<WorkerLog>> Open(LineLogOptions options);
  ~WorkerLog();

  // Takes all lines that this process logs, until its end.
  void Capture();
  void Take(LogLevel level, std::string_view lines);
  // What the controller is to be told now; none: nothing.
  std::optional<proto::LogLines> News();
  // False: the message is none of this. tell: called once, from another thread, also after the
  // session's end, but not behind Settle().
  bool Handle(const proto::DownBody& body, const std::function<void(proto::UpBody)>& tell);
  // Waits until all that was asked is answered.
  void Settle();

 private:
  struct Line {
    LogLevel level = LogLevel::kInfo;
    std::string text;
  };

  explicit WorkerLog(std::unique_ptr<LineLog> lines) : lines_(std::move(lines)) {}
  size_t LeaveOutOne() MW_REQUIRES(mutex_);
  proto::LogPiece PieceOf(const proto::FetchLog& fetch) const;

  const std::unique_ptr<LineLog> lines_;
  std::atomic<bool> captures_{false};
  std::atomic<int> asks_{0};
  Mutex mutex_;
  std::deque<Line> waiting_ MW_GUARDED_BY(mutex_);
  int64_t dropped_ MW_GUARDED_BY(mutex_) = 0;
  Executor reader_{"mw-log"};
};

// News() of a log, where there is one and the controller takes it.
std::optional<proto::LogLines> NewsOf(WorkerLog* log, bool takes_logs);

}  // namespace meshwright::worker
