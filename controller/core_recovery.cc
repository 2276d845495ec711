#include "controller/core_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/core_runs.h"

namespace meshwright::controller {

using proto::RuntimeError;

namespace {

double Seconds(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

std::string FromText(const ir::StartPoint& start) {
  return start.empty() ? "from the beginning"
                       : fmt::format("from the checkpoint of step {}", start.step);
}

// Devices in the place of the run's did not come in time.
void Replan(JobEntry& job, CoreState& core, Context& context) {
  job.recovery->replans = true;
  core.queue.Add(job.id());
  context.Do(LogLine{job.id(), fmt::format("no devices in the place of those that were lost came "
                                           "within {} s: planning anew for what is there",
                                           job.request->fault_tolerance.max_wait_for_spare_s)});
}

void TryAgain(JobEntry& job, CoreState& core, Context& context) {
  const ir::FaultToleranceSpec& spec = job.request->fault_tolerance;
  Recovery& recovery = *job.recovery;
  const auto seats = FindSeats(recovery.ranks, recovery.kind, core.members);
  if (seats) {
    recovery.placed_ms = context.now.ms;
    return BeginRunAgain(job, *seats, recovery.plan, core, context);
  }
  const int64_t waited_ms = context.now.ms - recovery.judged_ms;
  if (spec.elastic != ir::Elastic::kOff && recovery.may_replan &&
      waited_ms >= spec.max_wait_for_spare_s * 1000) {
    return Replan(job, core, context);
  }
  SetWaiting(
      job, "NoCapacity",
      fmt::format("waits for {} devices in the place of those that it had", recovery.ranks.size()),
      context);
}

}  // namespace

void BeginRecovery(JobEntry& job, const RuntimeError& cause, CoreState& core, Context& context) {
  const MeshState& mesh = core.meshes.At(*job.run->mesh()).state();
  // A run that fails before it has done anything new belongs to the recovery that made it.
  Recovery recovery;
  if (job.recovery) recovery = *std::move(job.recovery);
  if (recovery.failures == 0) {
    recovery.since_ms = mesh.aborting_since_ms;
    recovery.steps_before = job.record.steps_done;
  }
  ++recovery.failures;
  recovery.plan = mesh.order.plan;
  recovery.plan.placement.clear();
  recovery.ranks = job.run->ranks();
  const Worker* const worker = core.members.Named(recovery.ranks.front().worker);
  recovery.kind = worker == nullptr ? "cpu" : proto::KindOf(worker->info);
  recovery.judged_ms = context.now.ms;
  recovery.replans = false;
  const ir::StartPoint start = NewestStart(*job.request, job.record);
  job.recovery = std::move(recovery);
  job.run.reset();
  core.book.Move(job, JobEvent::kRecover, context);
  const std::string text =
      fmt::format("recovering: {}; goes on {}, {} steps are run again", cause.message,
                  FromText(start), job.recovery->steps_before - std::max<int64_t>(0, start.step));
  job.record.steps_done = std::max<int64_t>(0, start.step);
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
}

void RecoverJobs(CoreState& core, Context& context) {
  if (core.stopping) return;
  for (auto& [id, job] : core.book.all()) {
    const bool waits = job.record.state == JobState::kRecovering && job.recovery && !job.run &&
                       !job.recovery->replans;
    if (waits) TryAgain(job, core, context);
  }
}

void NoteProgress(JobEntry& job, Context& context) {
  if (!job.recovery || job.record.steps_done <= job.recovery->steps_before) return;
  const Recovery& recovery = *job.recovery;
  const std::string text = fmt::format(
      "recovered in {:.2f} s: letting go {:.2f}, finding devices {:.2f}, loading and connecting "
      "{:.2f}, restoring and {} steps again {:.2f}",
      Seconds(context.now.ms - recovery.since_ms), Seconds(recovery.judged_ms - recovery.since_ms),
      Seconds(recovery.placed_ms - recovery.judged_ms),
      Seconds(recovery.active_ms - recovery.placed_ms),
      recovery.steps_before - std::max<int64_t>(0, job.run->start().step),
      Seconds(context.now.ms - recovery.active_ms));
  job.recovery.reset();
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
}

bool StopReplanning(JobEntry& job, const RuntimeError& why, CoreState& core, Context& context) {
  if (!job.recovery || !job.recovery->replans) return false;
  core.queue.DropTry(job, context);
  job.recovery->replans = false;
  job.recovery->may_replan = false;
  core.book.Move(job, JobEvent::kUnplace, context);
  context.Do(LogLine{job.id(), fmt::format("no plan for the devices that are there: {}; waiting "
                                           "for as many as it had",
                                           why.message)});
  return true;
}

}  // namespace meshwright::controller
