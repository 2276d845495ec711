// LineLog: lines within bounded room, the oldest go first; in files, or in memory.
//
//   auto log = LineLog::Open({.folder = "/var/log/meshwright", .name = "w0"});
//   (*log)->Add("2026-03-01T12:00:00.123Z warn  worker: ...");
//
// A position is the number of bytes that were ever written before it, so that it stays true while
// old lines go. A log is a row of segments: one is begun when the last one is full, and the first
// one goes when there are too many. The files are NAME.<position>.log; those of an earlier life are
// taken up, and positions go on behind them.
//
// Thread rule: thread-safe. It must not log. Errors: those of base/file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"

namespace meshwright {

struct LineLogOptions {
  std::string folder = {};  // empty: in memory
  std::string name = "log";
  size_t segment_bytes = size_t{4} << 20;
  size_t segments = 4;
};

// Which lines are wanted.
struct LineQuery {
  int64_t from = -1;                      // position; below 0: as the others say
  int64_t lines = 0;                      // the last so many; 0: all that are there
  int64_t since_unix_ms = 0;              // lines of that time or later
  int64_t job = 0;                        // lines of processes that work for it; 0: all
  size_t most_bytes = size_t{256} << 10;  // of an answer
};

struct LinePiece {
  std::string text;  // whole lines
  int64_t next = 0;  // where to go on
  bool end = false;  // there is nothing more for now
};

// `name` as a part of a file's name, with %XX for what a file system or a shell may not like; a
// long one is cut and told apart by a hash.
std::string SafeFileName(std::string_view name);

class LineLog {
 public:
  static Result<std::unique_ptr<LineLog>> Open(LineLogOptions options);

  // Several, where there are line ends in it.
  Status Add(std::string_view lines);
  Result<LinePiece> Read(const LineQuery& query) const;
  int64_t end() const;
  int64_t bytes() const;  // that are kept

 private:
  struct Segment {
    int64_t begin = 0;
    int64_t bytes = 0;
    std::string path;  // empty: in memory
    std::string text;
  };

  explicit LineLog(LineLogOptions options) : options_(std::move(options)) {}
  Status TakeUp();
  void Begin(int64_t position) MW_REQUIRES(mutex_);
  Status DropOld() MW_REQUIRES(mutex_);
  int64_t EndLocked() const MW_REQUIRES(mutex_);
  static Result<std::string> TextOf(const Segment& segment);
  Result<int64_t> StartOf(const LineQuery& query) const MW_REQUIRES(mutex_);

  const LineLogOptions options_;
  mutable Mutex mutex_;
  std::deque<Segment> segments_ MW_GUARDED_BY(mutex_);  // at least one
};

}  // namespace meshwright
