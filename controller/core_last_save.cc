#include "controller/core_last_save.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "controller/core_halts.h"
#include "controller/core_recovery.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"

namespace meshwright::controller {
namespace {

// The steps in the newest state that the memory of workers may have, by what its run knows.
int64_t StepInMemory(Run& run) {
  const int64_t of_start = run.start().snapshots ? run.start().point.step : -1;
  return std::max(of_start, run.driver().SnapshotStep());
}

}  // namespace

bool IsLastRun(const JobEntry& job) { return job.recovery && job.recovery->ends_with; }

bool EndBehindLastSave(JobEntry& job, const proto::RuntimeError& cause, CoreState& core,
                       Context& context) {
  // A state that has led to no number is no state to go on from.
  if (!CanSave(*job.request) || !TakesSnapshots(*job.request) || core.stopping ||
      cause.kind == proto::ErrorKind::kDiverged || !job.run->mesh()) {
    return false;
  }
  if (StepInMemory(*job.run) <= NewestStart(*job.request, job.record).step) return false;
  if (!job.recovery) job.recovery.emplace();
  job.recovery->ends_with = cause;
  BeginRecovery(job, cause, core, context);
  return true;
}

void TryLastSave(JobEntry& job, CoreState& core, Context& context) {
  if (!NewestRunStart(job, context).snapshots) {
    return EndUnsaved(job, "the memory of workers has none that is whole", core, context);
  }
  if (const auto found = FindPlan(job, core, context)) {
    return BeginRunAgain(job, found->ranks, found->plan, core, context);
  }
  if (context.now.ms - job.recovery->judged_ms < core.options.last_save_ms) return;
  EndUnsaved(job, "there were no devices for it", core, context);
}

void BeginLastSave(JobEntry& job, CoreState& core, Context& context) {
  const int64_t now_ms = context.now.ms;
  BeginHalt(job,
            Halt{HaltFor::kFailure, now_ms, now_ms + core.options.last_save_ms,
                 job.recovery->ends_with->message},
            core, context);
}

void EndSaved(JobEntry& job, CoreState& core, Context& context) {
  const int64_t step = job.run->start().point.step;
  if (job.record.checkpoint_step < step) {
    return EndUnsaved(job, "the checkpoint was not written", core, context);
  }
  proto::RuntimeError cause = *job.recovery->ends_with;
  cause.message += fmt::format(
      "; its state after step {} is saved: 'meshwright submit --resume {}'", step, job.record.id);
  EndJob(job, cause, core, context);
}

void EndUnsaved(JobEntry& job, const std::string& why, CoreState& core, Context& context) {
  proto::RuntimeError cause = *job.recovery->ends_with;
  cause.message += fmt::format("; its last state could not be saved: {}", why);
  EndJob(job, cause, core, context);
}

}  // namespace meshwright::controller
