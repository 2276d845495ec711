#include "controller/core_restart.h"

#include <utility>

#include "controller/core_runs.h"
#include "controller/mesh_order.h"

namespace meshwright::controller {

void RestoreRun(JobEntry& job, const RunRecord& record, CoreState& core, Context& context) {
  job.was_active = job.record.state == JobState::kRunning || job.record.steps_done > 0;
  job.runs = record.number;
  job.device_memory_bytes = record.plan.device_memory_bytes;
  job.device_budget_bytes = record.plan.device_budget_bytes;
  job.peak_flops_per_s = record.plan.peak_flops_per_s;
  // What was under way may have been committed without being on record.
  if (job.request->checkpoint.enable) ++job.record.unheard_commits;
  job.run.emplace(record.number, record.ranks, record.start);
  core.meshes.Add(
      MeshLife(MakeMeshOrder(record, job), core.options, context.now.ms, MeshPhase::kResuming));
  job.run->Begin(record.gen, MakeDriver(*job.request, record.start, job.record.told_steps));
  Feed(record.gen, MeshFault{RestartedWhileRunning(job.record)}, core, context);
  Feed(record.gen, MeshEndElection{}, core, context);
}

}  // namespace meshwright::controller
