// The history of one job: a record per step and lines for people, in memory for watchers and on
// disk for later.
//
//   metrics.jsonl
//   {"step":0,"loss":5.54,"grad_norm":1.9,"lr":0.001,"tokens":4096,"seconds":0.05,
//    "validation_loss":2.1,"values":{"accuracy":0.5}}
//                  one object per line; a number that JSON cannot say is null; validation_loss only
//                  where measured, values only where the job's programs report more
//   job.log        "2026-03-01T12:00:00.123Z text"
// Records and lines are numbered from 0 in the order they came; watchers read from a number on.
// Thread rule: the memory part by the owner's loop; FormatStep, FormatLine and Load from any
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/result.h"
#include "proto/messages.h"

namespace meshwright::controller {

class Journal {
 public:
  static constexpr int64_t kMaxSteps = 200'000;
  static constexpr int64_t kMaxLines = 10'000;

  Journal() = default;
  // Of which the first records and lines are forgotten already.
  Journal(int64_t first_step, int64_t first_line)
      : first_step_(first_step), first_line_(first_line) {}

  void AddStep(const proto::StepMetrics& step);
  void AddLine(std::string line);
  // What `later` holds comes behind what is here.
  void Append(const Journal& later);

  int64_t step_count() const { return first_step_ + static_cast<int64_t>(steps_.size()); }
  int64_t line_count() const { return first_line_ + static_cast<int64_t>(lines_.size()); }
  // What came from number `from` on, at most `limit`; moves `from` behind it. Forgotten records are
  // skipped.
  std::vector<proto::StepMetrics> StepsFrom(int64_t& from, int64_t limit) const;
  std::vector<std::string> LinesFrom(int64_t& from, int64_t limit) const;

 private:
  int64_t first_step_ = 0;
  int64_t first_line_ = 0;
  std::deque<proto::StepMetrics> steps_;
  std::deque<std::string> lines_;
};

// One line each, with its line end.
std::string FormatStep(const proto::StepMetrics& step);
std::string FormatLine(const std::string& text, int64_t unix_ms);

// Reads a job's folder back: as much as a journal holds, from the end, in memory that does not
// depend on the files' length. A missing file gives no records, a damaged line is skipped.
struct JournalSizes {
  int64_t metrics_bytes = 0;
  int64_t log_bytes = 0;
};
// What the files hold now: what is appended later is not read by a LoadJournal with these sizes.
JournalSizes MeasureJournal(const std::string& job_dir);
Journal LoadJournal(const std::string& job_dir, const JournalSizes& sizes);

// Of a folder that a dead controller left: cuts off the begin of a line that was not written whole,
// so that nothing is appended to it. Returns the number of steps up to the last one on record; 0:
// there is none.
int64_t MendJournal(const std::string& job_dir);

}  // namespace meshwright::controller
