#include "controller/backfill.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace meshwright::controller {

int64_t SpareDevices(int64_t least, int64_t free, const std::vector<int64_t>& held) {
  MW_CHECK(least >= 0 && free >= 0) << least << " of " << free << " devices";
  if (free >= least) return free - least;
  const int64_t missing = least - free;
  int64_t all = 0;
  for (const int64_t size : held) all += size;
  if (all < missing) return -1;
  // The sums that ending jobs can give back; the smallest that is enough leaves the least over.
  std::vector<bool> reached(static_cast<size_t>(all) + 1, false);
  reached[0] = true;
  for (const int64_t size : held) {
    for (int64_t sum = all; sum >= size; --sum) {
      if (reached[static_cast<size_t>(sum - size)]) reached[static_cast<size_t>(sum)] = true;
    }
  }
  int64_t sum = missing;
  while (!reached[static_cast<size_t>(sum)]) ++sum;
  return sum - missing;
}

std::vector<int64_t> HeldByJobs(const Membership& members, const std::string& kind) {
  std::map<JobId, int64_t> sizes;
  for (const auto& [name, worker] : members.all()) {
    const bool stays = worker.state == WorkerState::kReady || worker.state == WorkerState::kSuspect;
    if (!stays || KindOf(worker.info) != kind || !members.standings().IsOpen(name)) continue;
    for (const JobId job : worker.device_job) {
      if (job.value() != 0) ++sizes[job];
    }
  }
  std::vector<int64_t> held;
  for (const auto& [job, size] : sizes) held.push_back(size);
  return held;
}

ClusterView BehindHead(const HeadWait& wait, const ClusterView& cluster) {
  ClusterView view = cluster;
  const Membership& members = cluster.members;
  // It is about to get what comes back, or to see who joins.
  const bool soon = members.Returning(cluster.ending, wait.kind).count > 0 ||
                    (wait.outcome != PlacementOutcome::kNoCapacity && !wait.stable);
  if (soon) {
    view.most[wait.kind] = 0;
    return view;
  }
  if (wait.outcome != PlacementOutcome::kNoCapacity) return view;
  const auto free = static_cast<int64_t>(FreeDevices(cluster, wait.kind).size());
  std::vector<int64_t> held = HeldByJobs(members, wait.kind);
  // What is kept for jobs between two runs may come free, each by itself.
  for (const mesh::Device& device : members.FreeDevices(wait.kind)) {
    if (cluster.kept.contains({device.worker, device.local_index})) held.push_back(1);
  }
  const int64_t spare = SpareDevices(wait.least, free, held);
  if (spare >= 0) view.most[wait.kind] = spare;
  return view;
}

}  // namespace meshwright::controller
