// JobQueue: who waits for devices, in which order, and why.
//
// Jobs stand in the order in which they came: by id, also when they come back. Only the head is
// placed. What placing or planning a job does to this process must not be done over and over: a try
// is on disk before it begins (PlaceNext), and one that waits for other devices has come to an end.
// Where the cluster looks to a job as it did, so does the answer, and it is not tried again.
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

#include "controller/job_book.h"
#include "controller/kind_placement.h"

namespace meshwright::controller {

class JobQueue {
 public:
  // Into its place.
  void Add(JobId job);
  // It has ended.
  void Forget(JobId job);

  // A job that has left the queue.
  struct Departure {
    JobEntry& job;
    std::vector<mesh::Device> devices;  // that it gets, by rank
    proto::RuntimeError failure;        // not OK: it gets none, now or later
  };
  // The head, where it can go now; else nothing, and everyone knows why it waits. To be called
  // until it gives nothing.
  std::optional<Departure> Next(JobBook& book, const ClusterView& cluster, Context& context);

  // The job is planned, whatever came of it.
  void EndTry(JobEntry& job);
  // The try has come to nothing, which is not the job's doing: it is not counted.
  void DropTry(JobEntry& job, Context& context);
  bool IsTrying(JobId job) const { return trying_.contains(job); }

  size_t size() const { return jobs_.size(); }
  const std::deque<JobId>& jobs() const { return jobs_; }

 private:
  void BeginTry(JobEntry& job, const ClusterView& cluster, Context& context);
  std::optional<Departure> PlaceHead(JobEntry& job, const ClusterView& cluster, Context& context);
  void TellThoseBehind(JobBook& book, Context& context);

  std::deque<JobId> jobs_;
  std::set<JobId> trying_;               // to place or plan them: JobRecord::tries counts it
  std::map<JobId, std::string> sights_;  // of the cluster, when it was last tried to place them
};

}  // namespace meshwright::controller
