// MessageTally: how many control messages were sent and received, by kind and by job.
//
// Workers name jobs as they like, so only the jobs that are listed are counted for; the totals have
// them all. Thread rule: the core's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"

namespace meshwright::controller {

class MessageTally {
 public:
  using Counts = std::map<std::string, int64_t>;  // by kind: "Launch", "LaunchDone", ...

  void List(JobId job) { by_job_[job]; }
  void Forget(JobId job) { by_job_.erase(job); }
  void Count(JobId job, const char* kind) {
    ++totals_[kind];
    if (const auto it = by_job_.find(job); it != by_job_.end()) ++it->second[kind];
  }
  // Messages of a past that is over: of no session, generation or launch.
  void CountStale(int64_t messages = 1) { stale_ += messages; }

  // Nothing where the job is not listed.
  Counts Of(JobId job) const {
    const auto it = by_job_.find(job);
    return it == by_job_.end() ? Counts{} : it->second;
  }
  const Counts& totals() const { return totals_; }
  int64_t stale() const { return stale_; }

 private:
  Counts totals_;
  std::map<JobId, Counts> by_job_;
  int64_t stale_ = 0;
};

}  // namespace meshwright::controller
