// JobQueue: who waits for devices, in which order, and why.
//
// Jobs stand by priority, and of equal priority in the order in which they came: by id, also when
// they come back. The head is placed first. Those behind it may start on devices that it cannot use
// and on those whose use does not put off its start (controller/backfill.h). What placing or
// planning a job does to this process must not be done over and over: a try is on disk before it
// begins (PlaceNext), and one that waits for other devices has come to an end. Where the cluster
// looks to a job as it did, so does the answer, and it is not tried again.
//
// Thread rule: the core's thread.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/backfill.h"
#include "controller/job_book.h"
#include "controller/kind_placement.h"

namespace meshwright::controller {

class JobQueue {
 public:
  // So many behind the head are looked at.
  static constexpr size_t kMostBehind = 64;

  // Into its place.
  void Add(JobId job, int64_t priority = 0);
  // It has ended.
  void Forget(JobId job);

  // A job that has left the queue.
  struct Departure {
    JobEntry& job;
    std::vector<mesh::Device> devices;  // that it gets, by rank
    proto::RuntimeError failure;        // not OK: it gets none, now or later
  };
  // The head, or one behind it, where it can go now; else nothing, and everyone knows why it waits.
  // To be called until it gives nothing.
  std::optional<Departure> Next(JobBook& book, const ClusterView& cluster, Context& context);

  // The job is planned, whatever came of it.
  void EndTry(JobEntry& job);
  // The try has come to nothing, which is not the job's doing: it is not counted.
  void DropTry(JobEntry& job, Context& context);
  bool IsTrying(JobId job) const { return trying_.contains(job); }

  size_t size() const { return jobs_.size(); }
  const std::deque<JobId>& jobs() const { return jobs_; }
  // What the head was found to wait for; null: it was not tried yet.
  const HeadWait* head_wait() const;

 private:
  bool IsHead(const JobEntry& job) const { return jobs_.front() == job.id(); }
  // True: it has begun, and ends with the next call.
  bool BeginTry(JobEntry& job, const ClusterView& cluster, Context& context);
  std::optional<Departure> Place(JobEntry& job, const ClusterView& cluster, Context& context);
  void Wait(JobEntry& job, const char* reason, Placement placement, bool stable, Context& context);
  void Leave(JobId job);
  void TellThoseBehind(JobBook& book, Context& context);

  std::deque<JobId> jobs_;
  std::map<JobId, int64_t> priorities_;  // of those in jobs_
  std::optional<HeadWait> wait_;         // of the job that was head when it was tried last
  std::set<JobId> trying_;               // to place or plan them: JobRecord::tries counts it
  std::map<JobId, std::string> sights_;  // of the cluster, when it was last tried to place them
};

}  // namespace meshwright::controller
