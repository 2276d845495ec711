#include "controller/host_faults.h"

namespace meshwright::controller {

int64_t HostFaults::Note(const std::string& worker, JobId job, int64_t now_ms, int64_t window_ms) {
  std::deque<Fault>& faults = faults_[worker];
  while (!faults.empty() && faults.front().ms <= now_ms - window_ms) faults.pop_front();
  faults.push_back(Fault{job, now_ms});
  return static_cast<int64_t>(faults.size());
}

void HostFaults::TakeBack(JobId job) {
  for (auto& [worker, faults] : faults_) {
    std::erase_if(faults, [&](const Fault& fault) { return fault.job == job; });
  }
  std::erase_if(faults_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace meshwright::controller
