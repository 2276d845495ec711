#include "controller/preemption.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "controller/core_halts.h"
#include "controller/core_recovery.h"

namespace meshwright::controller {

std::vector<JobId> ChooseVictims(std::vector<PreemptionCandidate> candidates, int64_t missing) {
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.priority, b.job) < std::tuple(b.priority, a.job);
  });
  std::vector<PreemptionCandidate> chosen;
  int64_t freed = 0;
  for (const PreemptionCandidate& candidate : candidates) {
    if (freed >= missing) break;
    chosen.push_back(candidate);
    freed += candidate.devices;
  }
  if (freed < missing) return {};
  // The last ones may have made earlier ones needless; the highest priorities are spared first.
  for (auto it = chosen.end(); it != chosen.begin();) {
    --it;
    if (freed - it->devices < missing) continue;
    freed -= it->devices;
    it = chosen.erase(it);
  }
  std::vector<JobId> victims;
  for (const PreemptionCandidate& candidate : chosen) victims.push_back(candidate.job);
  return victims;
}

namespace {

// Its devices of the kind, on workers that take work.
int64_t DevicesOf(const JobEntry& job, const Membership& members, const std::string& kind) {
  return std::count_if(
      job.run->ranks().begin(), job.run->ranks().end(), [&](const RankPlace& rank) {
        const Worker* const worker = members.Named(rank.worker);
        return worker != nullptr && KindOf(worker->info) == kind &&
               worker->state == WorkerState::kReady && members.standings().IsOpen(rank.worker);
      });
}

bool MayGiveWay(const JobEntry& job, int64_t to_priority, Now now) {
  return job.record.state == JobState::kRunning && job.request->queue.preemptible &&
         job.request->queue.priority < to_priority && CanHalt(*job.request) &&
         now.ms >= job.preempt_after_ms;
}

}  // namespace

void PreemptForHead(CoreState& core, Context& context) {
  const HeadWait* const wait = core.queue.head_wait();
  if (wait == nullptr || wait->outcome != PlacementOutcome::kNoCapacity) return;
  const HeadWait head = *wait;
  const int64_t priority = core.book.At(head.job).request->queue.priority;
  const ClusterView cluster{core.members, core.meshes.EndingDevices(), KeptDevices(core)};
  int64_t coming = core.members.Returning(cluster.ending, head.kind).count +
                   static_cast<int64_t>(FreeDevices(cluster, head.kind).size());
  std::vector<PreemptionCandidate> candidates;
  for (const auto& [id, job] : core.book.all()) {
    if (!job.run || !job.run->mesh()) continue;
    const int64_t devices = DevicesOf(job, core.members, head.kind);
    if (job.run->halt()) {
      coming += job.run->halt()->behind_save ? 0 : devices;
    } else if (devices > 0 && MayGiveWay(job, priority, context.now)) {
      candidates.push_back({id, job.request->queue.priority, devices});
    }
  }
  if (coming >= head.least) return;
  const std::string why =
      fmt::format("job {} of priority {} needs its devices", head.job.value(), priority);
  for (const JobId victim : ChooseVictims(std::move(candidates), head.least - coming)) {
    BeginHalt(
        core.book.At(victim),
        Halt{HaltFor::kPreempt, context.now.ms, context.now.ms + core.options.pause_save_ms, why},
        core, context);
  }
}

}  // namespace meshwright::controller
