// Recovery: what becomes of a job whose run has failed.
//
// JudgeFailure is the policy, and the one place that has it. A job that goes on keeps the plan of
// the run that failed: it goes on by the same plan, on the same devices or on others in the place
// of those that were lost, or, when these do not come in time, by a new plan on what is there.
//
// A failure that came out of the job's own work comes again: two of one kind at the same step, and
// no step done between them that is new, are the job's fault, and end it. Thread rule: pure
// functions and values.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/events.h"
#include "controller/membership.h"
#include "controller/run.h"
#include "ir/job.h"

namespace meshwright::controller {

// How a run ended that did not end well.
struct RunFailure {
  bool was_begun = false;   // a worker may have been told of it
  bool was_active = false;  // it, or a run before it, has done work
  int64_t steps_done = 0;
  proto::RuntimeError cause;
};

// What the job has lived through.
struct RecoveryHistory {
  std::deque<int64_t> unix_ms;  // of the recoveries of the last day
  struct Own {
    proto::ErrorKind kind;
    int64_t steps_done = 0;
    std::string worker = {};  // where it was seen
    bool elsewhere = false;   // only when it comes again on another one it is the job's
  };
  // The last failure that came out of the job's own work, until a step is done that is new.
  std::optional<Own> own;
};

// Whether the machine of cause.worker is what failed: a device, or the disk that programs are kept
// on. Not so what the job did, a kill, or want of memory.
bool HostIsToBlame(const proto::RuntimeError& cause);

enum class AfterFailure : uint8_t {
  kPlanAgain,  // nobody was told of the run: the job goes back to its place in the queue
  kRecover,
  kEndJob,  // with the cause
};
struct Judgement {
  AfterFailure after = AfterFailure::kEndJob;
  std::string why;      // a job that could have gone on does not; "": the cause says it
  bool is_own = false;  // since what fails is the job's own doing, wherever it runs
};
// Adds a recovery, and what may be the job's own fault, to the history.
Judgement JudgeFailure(const RunFailure& failure, const ir::JobRequest& job, int64_t now_unix_ms,
                       RecoveryHistory& history);

// A job that has no run, and will have another one.
struct Recovery {
  PlannedJob plan;               // of the run that failed
  std::vector<RankPlace> ranks;  // its devices
  std::string kind;              // of its devices
  std::string avoid = {};        // the worker whose machine failed; empty: none
  int failures = 0;              // of runs, since a step was done that was new
  int64_t steps_before = 0;      // that were done then
  int64_t since_ms = 0;          // the failure was known
  int64_t judged_ms = 0;         // every member of the failed mesh has let go, or time was up
  int64_t placed_ms = 0;         // the next run has devices and a plan
  int64_t active_ms = 0;         // its mesh is connected
  bool replans = false;          // in the queue, for a new plan
  bool gives_way = false;        // in the queue, since another job needed its devices
  bool moves = false;            // its run halted: nothing has failed
  std::optional<proto::StepMetrics> held = {};  // of the last step that was done, not told yet
  std::optional<JudgedSoFar> stands = {};       // how the validations before were
  std::set<SnapshotId> unreadable = {};         // that a run could not be restored from
  std::set<std::string> notes = {};             // told of snapshots that are not taken
  // It has failed for good: what no checkpoint has is saved, and it ends with this.
  std::optional<proto::RuntimeError> ends_with = {};
  std::string told_start = {};  // where people were told that it goes on from
  int64_t unplannable = -1;     // for so many devices there was no plan
};

// Devices for the same plan (controller/elastic.h): the ones of before where their worker is there
// and has let go of them, else free ones of the same kind.
std::optional<std::vector<RankPlace>> FindSeats(const Recovery& recovery,
                                                const Membership& members);

// The newest state that a run can start from; step below 0: there is none, it starts anew.
ir::StartPoint NewestStart(const ir::JobRequest& job, const JobRecord& record);

}  // namespace meshwright::controller
