// Reading logs of workers piece by piece, so that a terminal or a pipe that is slow slows only the
// reader.
//
// Thread rule: a value of one thread. Ownership: the inspector outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/args.h"
#include "client/inspector.h"

namespace meshwright::cli {

struct LogLine {
  std::string worker;
  std::string text;     // without line end
  int64_t unix_ms = 0;  // as the line says, else as the line before it
};

class WorkerLogReader {
 public:
  WorkerLogReader(client::Inspector& inspector, client::LogAsk first)
      : inspector_(inspector), ask_(std::move(first)) {}

  // What has come since the last call, at most a piece; end(): that was all for now. Errors: those
  // of the inspector.
  Result<std::vector<LogLine>> Next();
  bool end() const { return end_; }
  // Why it is not the worker's own log, once; empty: nothing to say.
  std::string TakeNote();

 private:
  client::Inspector& inspector_;
  client::LogAsk ask_;
  bool end_ = false;
  std::string note_;
  int64_t unix_ms_ = 0;
};

// In the order of time; lines of one worker stay in theirs.
std::vector<LogLine> MergeLines(std::vector<std::vector<LogLine>> of_workers);
// What is said where there was no line: of whom, and what narrowed it.
std::string NoLinesNote(const LogsArgs& args);
// {"worker":"w0","line":"..."}.
std::string WorkerLineJson(const LogLine& line);

}  // namespace meshwright::cli
