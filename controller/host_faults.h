// HostFaults: when the machines of workers failed, by the names of the workers.
//
// What is the job's own doing shows wherever the job runs: its faults are taken back when that is
// known. Kept in memory: who failed before the controller did may fail again. Thread rule: the
// core's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/ids.h"

namespace meshwright::controller {

class HostFaults {
 public:
  // Of a job's run on the worker; how many there were within the window, with this one.
  int64_t Note(const std::string& worker, JobId job, int64_t now_ms, int64_t window_ms);
  // They were the job's.
  void TakeBack(JobId job);
  void Forget(const std::string& worker) { faults_.erase(worker); }

 private:
  struct Fault {
    JobId job;
    int64_t ms;
  };
  std::map<std::string, std::deque<Fault>> faults_;  // oldest first
};

}  // namespace meshwright::controller
