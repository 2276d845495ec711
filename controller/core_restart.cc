#include "controller/core_restart.h"

#include <set>
#include <string>
#include <utility>

#include "controller/core_records.h"
#include "controller/core_runs.h"
#include "controller/mesh_order.h"

namespace meshwright::controller {

// What a client's calls brought is lost, and sums
// of an evaluation are nowhere else.
bool MayGoOn(const JobEntry& job) {
  return job.record.state == JobState::kRunning &&
         job.request->driver.kind == ir::DriverKind::kTrain &&
         job.request->fault_tolerance.orphan_grace_s > 0;
}

void RestoreRun(JobEntry& job, const RunRecord& record, CoreState& core, Context& context) {
  job.was_active = job.record.state == JobState::kRunning || job.record.steps_done > 0;
  job.runs = record.number;
  job.device_memory_bytes = record.plan.device_memory_bytes;
  job.device_budget_bytes = record.plan.device_budget_bytes;
  job.peak_flops_per_s = record.plan.peak_flops_per_s;
  job.larger = record.larger;
  job.run.emplace(record.number, record.ranks, record.start);
  MeshOrder order = MakeMeshOrder(record, job);
  order.checkpoints.head.saved_unix_ms = context.now.unix_ms;
  // What its workers hold, of this run or of one before, is asked for and dropped as ever.
  if (!order.snapshot_slots.empty()) {
    std::set<std::string> holders(record.keepers.begin(), record.keepers.end());
    for (const RankPlace& rank : record.ranks) holders.insert(rank.worker);
    for (const std::string& worker : holders) {
      job.snapshots.Add(worker, MeshGeneration(0));
      job.snapshots.Expect(worker, context.now.ms + core.options.worker_lost_ms);
    }
  }
  core.meshes.Add(MeshLife(std::move(order), core.options, context.now.ms, MeshPhase::kResuming));
  job.run->Begin(record.gen, MakeDriver(*job.request, record.start, job.record.told_steps));
  context.Do(BeginsBy(record.plan, job));
  if (MayGoOn(job)) return;
  Feed(record.gen, MeshFault{RestartedWhileRunning(job.record)}, core, context);
  Feed(record.gen, MeshEndElection{}, core, context);
}

}  // namespace meshwright::controller
