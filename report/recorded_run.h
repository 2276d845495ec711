// What devices wrote down of a job's steps, on one clock: that of the controller.
//
// Workers' times are of their hosts' clocks. Of every round of messages that a host has answered
// (ir::ClockRound) the one that was over soonest says best what its clock is ahead; the times of
// all of its devices are shifted by that, and may be wrong against another host's by the errors of
// both. Nothing here compares times of two hosts to a finer grain.
//
// Thread rule: values; one thread adds. Bounded: the newest kMostSteps steps are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/step_record.h"
#include "planner/plan.h"

namespace meshwright::report {

struct HostClock {
  int64_t offset_ns = 0;  // ahead of the controller's
  int64_t error_ns = 0;   // at most
};

struct RecordedStep {
  int64_t step = 0;
  std::vector<ir::StepRecord> records;  // by rank, then by lane
};

struct RecordedSave {
  int64_t step = 0;  // steps that are done before it
  std::string worker;
  int64_t begin_ns = 0;  // its devices stand still from here to there
  int64_t end_ns = 0;
};

// What a worker said of a launch. Steps may be none.
struct MemberNote {
  std::string worker;
  std::string host;
  ir::ClockRound round;
  int64_t begin_ns = 0;
  int64_t said_ns = 0;
  std::vector<ir::StepRecord> steps;
};

// Whether the record can be one of this program: instructions and nodes are there, times do not run
// backwards. Errors: kInvalidArgument.
Status CheckRecord(const ir::Program& program, const ir::StepRecord& record);

class RecordedRun {
 public:
  static constexpr size_t kMostSteps = 64;
  static constexpr size_t kMostMarks = 4'000'000;  // of all steps; about 64 MB

  // Of one launch, what all members said; what is no record of the plan's main program is dropped
  // and counted. save: steps that a checkpoint is of, where the launch is one; below 0: it is none.
  // Returns the steps that were recorded.
  ir::StepRange Add(const planner::Plan& plan, std::vector<MemberNote> members, int64_t save = -1);

  const std::map<int64_t, RecordedStep>& steps() const { return steps_; }
  const std::vector<RecordedSave>& saves() const { return saves_; }
  const std::map<std::string, HostClock>& clocks() const { return clocks_; }  // by host
  // Of a rank; empty: nothing was heard of it.
  const std::string& WorkerOf(int rank) const;
  int64_t dropped() const { return dropped_; }
  // Those of the range that are whole: every program of the plan has said something. count 0: the
  // newest ones, without a gap.
  std::vector<RecordedStep> Steps(const planner::Plan& plan, const ir::StepRange& range) const;

 private:
  void AddMember(const planner::Plan& plan, MemberNote& member, int64_t save);
  void Trim();

  std::map<int64_t, RecordedStep> steps_;
  std::vector<RecordedSave> saves_;
  std::map<std::string, HostClock> clocks_;
  std::map<int, std::string> workers_;
  ir::StepRange newest_;
  size_t marks_ = 0;
  int64_t dropped_ = 0;
};

}  // namespace meshwright::report
