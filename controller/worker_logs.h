// WorkerLogs: the logs of workers as their controller has them: lines that outlive a worker and its
// host, and the way to the whole log of a worker that is here.
//
// What a worker tells goes to files of its name, at most kKeptBytes of each worker, the oldest
// first when there is more; of kMostWorkers workers, the one that was silent longest goes first. A
// part of a worker's own log is asked for over its session, one bounded piece at a time: who wants
// more asks again, so that nothing piles up for a slow reader. A worker that does not answer in
// kAnswerMs, or leaves meanwhile, is answered for from what is kept, and a note says so.
//
// Thread rule: thread-safe; files and answers are of a thread of its own. Ownership: what Join is
// given lives until Leave returns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/line_log.h"
#include "base/mutex.h"
#include "proto/log_messages.h"

namespace meshwright::controller {

struct LogQuestion {
  std::string worker;
  proto::FetchLog what;  // without `ask`
  bool kept = false;     // of what is kept, whether the worker is here or not
};

struct LogAnswer {
  LinePiece piece;
  bool live = false;  // it is the worker's own; positions are of that log
  std::string note;   // why it is not, for people; empty: nothing to say
};

class WorkerLogs {
 public:
  static constexpr size_t kKeptBytes = size_t{256} << 10;
  static constexpr size_t kMostWorkers = 1024;
  static constexpr int64_t kAnswerMs = 5'000;

  // folder: of the files; those of an earlier life are taken up. Errors: those of base/file.h.
  static Result<std::unique_ptr<WorkerLogs>> Open(std::string folder, const Clock& clock);
  ~WorkerLogs() { Stop(); }

  // The worker has a session by which pieces can be asked for; it replaces an earlier one. The id
  // is what Leave wants.
  using Fetch = std::function<void(const proto::FetchLog&)>;
  uint64_t Join(const std::string& worker, Fetch fetch);
  void Leave(const std::string& worker, uint64_t session);
  void Keep(const std::string& worker, proto::LogLines lines);
  void OnPiece(proto::LogPiece piece);

  using Done = std::function<void(Result<LogAnswer>)>;
  // done: once, on another thread. Errors: kNotFound: the worker is not here, and nothing is kept
  // of it; those of its log.
  void Ask(LogQuestion question, Done done);
  // What was asked is answered. Idempotent.
  void Stop();

 private:
  struct Session {
    uint64_t id = 0;
    Fetch fetch;
  };
  struct Pending {
    LogQuestion question;
    uint64_t session = 0;
    Done done;
  };
  struct Kept {
    std::unique_ptr<LineLog> log;
    int64_t last_unix_ms = 0;  // of the lines
  };

  WorkerLogs(std::string folder, const Clock& clock) : folder_(std::move(folder)), clock_(clock) {}
  Status TakeUp();
  LineLogOptions OptionsOf(const std::string& safe_name) const;
  void KeepOnLoop(const std::string& worker, const proto::LogLines& lines);
  void AnswerKeptOnLoop(const LogQuestion& question, const std::string& why, const Done& done);
  void GiveUpOnLoop(uint64_t ask, const std::string& why);
  void ForgetOneOnLoop();

  const std::string folder_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Session, std::less<>> sessions_ MW_GUARDED_BY(mutex_);
  std::map<uint64_t, Pending> pending_ MW_GUARDED_BY(mutex_);
  uint64_t next_id_ MW_GUARDED_BY(mutex_) = 1;
  std::map<std::string, Kept> kept_;  // by name of the files; of the thread
  Executor files_{"mw-logs"};
};

}  // namespace meshwright::controller
