// JobBook: the jobs that people see, from the moment they are written down.
//
// It holds their records, states, requests and runs, and says what of that is to be persisted and
// when: a job is on disk before it is acknowledged, its end before anyone hears of it. An end that
// cannot be written stands as long as this controller lives, and is tried again. States move by
// the table in controller/states.h. Who waits is the queue's business (controller/job_queue.h), how
// a job runs its run's (controller/run.h).
//
// Thread rule: the core's thread. Ownership: holds the entries; a pointer to one is valid until
// Withdraw or Trim.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core_context.h"
#include "controller/job_snapshots.h"
#include "controller/programs_ahead.h"
#include "controller/recovery.h"
#include "controller/restored_jobs.h"
#include "controller/run.h"
#include "controller/states.h"
#include "controller/store.h"

namespace meshwright::controller {

// What is wrong with a run that goes on: "Stalled" or "SlowRank", and why.
struct Attention {
  std::string reason;
  std::string text;
};

struct JobEntry {
  JobRecord record;                               // its spec is kept in the store only
  std::shared_ptr<const ir::JobRequest> request;  // null once terminal
  int64_t request_bytes = 0;                      // of its spec; 0 once terminal
  int runs = 0;                                   // that were begun, each with its number
  std::optional<Run> run;                         // from its devices to its end
  // As planned for the last run: PlannedJob has the same.
  int64_t device_memory_bytes = 0;
  int64_t device_budget_bytes = 0;
  double peak_flops_per_s = 0;
  int64_t progress_saved_ms = 0;
  int64_t queued_unix_ms = 0;    // it waits since then, or waited
  int64_t preempt_after_ms = 0;  // it could not be saved: not before that again
  int64_t saved_ms = 0;          // a checkpoint came to its end, or there was nothing to save yet
  RecoveryHistory history;
  JobSnapshots snapshots;
  std::optional<Recovery> recovery;  // until another run has done a step that is new
  ProgramsAhead ahead;               // for the plan of its run
  int64_t active_ms = 0;             // its run works since then
  // That it had before it went on with fewer devices; it returns to it (controller/core_return.h).
  std::optional<SeatedPlan> larger;
  int returns = 0;                 // to it, one soon after the other
  bool was_active = false;         // a run of it has done work
  Attention attention;             // empty: nothing
  ir::StepRange record_wish = {};  // steps that somebody wants recorded
  bool end_told = false;           // although the store may not have it yet

  JobId id() const { return JobId(record.id); }
  bool ended() const { return proto::IsTerminal(record.state); }
};

class JobBook {
 public:
  explicit JobBook(int64_t first_job) : next_id_(first_job) {}

  // A job of an earlier controller, which is entered as it was or as QUEUED.
  struct Restored {
    JobEntry& job;
    std::optional<RunRecord> run;  // none: it has none to take up
    proto::RuntimeError failure;   // not OK: it ends with this
  };
  Restored Restore(RestoredJob restored, const CoreOptions& options);
  // Writes a job down and answers its submission; null where it is refused or known. room: why no
  // job is taken any more.
  JobEntry* Submit(const SubmitJob& event, const Status& room, Context& context);
  // A job that was never acknowledged, so it never was.
  void Withdraw(JobId job);

  JobEntry* Find(JobId job);  // null: there is none
  const JobEntry* Find(JobId job) const;
  // REQUIRES that there is one.
  JobEntry& At(JobId job);
  std::map<JobId, JobEntry>& all() { return jobs_; }
  const std::map<JobId, JobEntry>& all() const { return jobs_; }

  // REQUIRES that the table lists it.
  void Move(JobEntry& job, JobEvent event, Context& context);
  // It has no request and no run any more. cause: OK: it has succeeded.
  void End(JobEntry& job, const proto::RuntimeError& cause, Context& context);
  // The store does not have its end yet.
  void EndNotWritten(JobEntry& job, Context& context);
  void WriteEndsAgain(Context& context);
  // Deletes the oldest ended jobs beyond CoreOptions::max_jobs, but for those `kept`: their ids.
  std::vector<JobId> Trim(const std::set<JobId>& kept, Context& context);

  int64_t request_bytes() const { return request_bytes_; }
  // Those that are RECOVERING.
  const std::set<JobId>& recovering() const { return recovering_; }

 private:
  void TakeRequest(JobEntry& job, std::shared_ptr<const ir::JobRequest> request, size_t bytes);
  void DropRequest(JobEntry& job);
  void AnnounceEnd(JobEntry& job, Context& context) const;

  int64_t next_id_;
  int64_t request_bytes_ = 0;  // of all jobs
  std::map<JobId, JobEntry> jobs_;
  std::map<std::string, JobId> job_of_op_;
  std::set<JobId> unwritten_ends_;
  std::set<JobId> recovering_;
};

// ---- Of one job ---------------------------------------------------------------------------------

// Why it ends, or recovers, whose run nobody takes up.
proto::RuntimeError RestartedWhileRunning(const JobRecord& record);
// Its record, with a line of history.
void PersistJob(const JobEntry& job, bool required, const std::string& text, Context& context);
// Its tries, which have to outlive this process only.
void PersistTries(const JobEntry& job, Context& context);
// Why it waits, for people.
void SetWaiting(JobEntry& job, const char* reason, std::string message, Context& context);
// What its driver says of it.
void TellNews(JobEntry& job, DriverNews news, Context& context);

}  // namespace meshwright::controller
