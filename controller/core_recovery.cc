#include "controller/core_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/core_ahead.h"
#include "controller/core_last_save.h"
#include "controller/core_return.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"
#include "controller/elastic.h"
#include "controller/kind_placement.h"

namespace meshwright::controller {

using proto::RuntimeError;

namespace {

double Seconds(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

std::string FromText(const RunStart& start) {
  if (start.point.empty()) return "from the beginning";
  return fmt::format("from the {} of step {}", start.snapshots ? "snapshot" : "checkpoint",
                     start.point.step);
}

// Once, unless it is another one by now.
RunStart TellStart(JobEntry& job, Context& context) {
  RunStart start = NewestRunStart(job, context);
  const int64_t done = std::max<int64_t>(0, start.point.step);
  const int64_t again = std::max<int64_t>(0, job.recovery->steps_before - done);
  const bool ends = job.recovery->ends_with.has_value();
  const std::string text = ends ? fmt::format("its state is saved {}", FromText(start))
                                : fmt::format("goes on {}, {} {} run again", FromText(start), again,
                                              again == 1 ? "step is" : "steps are");
  if (std::exchange(job.recovery->told_start, text) == text) return start;
  if (!ends) job.record.steps_done = done;
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
  return start;
}

// Whether what the cluster has may be enough for a new plan, be it busy or not.
bool MayReplan(const JobEntry& job, const CoreState& core) {
  const ir::FaultToleranceSpec& spec = job.request->fault_tolerance;
  const Recovery& recovery = *job.recovery;
  const int64_t there = DeviceCount(core.members, recovery.kind);
  if (spec.elastic == ir::Elastic::kOff || there < spec.min_devices) return false;
  const ir::ParallelSpec& had = recovery.plan.degrees;
  if (!ToPlanForFewer(*job.request, recovery.kind, had, there)) return false;
  const ClusterView all{core.members, {}};
  const Placement placement =
      PlaceOnKind(all, ToPlaceOnFewer(*job.request, recovery.kind, had), /*stable=*/true);
  if (placement.outcome != PlacementOutcome::kPlaced) {
    return placement.outcome == PlacementOutcome::kNoCapacity;
  }
  return static_cast<int64_t>(placement.devices.size()) != recovery.unplannable;
}

void LeaveQueue(JobEntry& job, CoreState& core, Context& context) {
  core.queue.DropTry(job, context);
  core.queue.Forget(job.id());
  job.recovery->replans = false;
}

// Devices in the place of the run's did not come in time.
void Replan(JobEntry& job, CoreState& core, Context& context) {
  job.recovery->replans = true;
  core.queue.Add(job.id(), job.request->queue.priority);
  const int64_t wait_ms = WaitForSpareMs(job.request->fault_tolerance, /*has_program=*/false);
  context.Do(LogLine{job.id(), fmt::format("no devices in the place of those that were lost came "
                                           "within {} s: planning anew for what is there",
                                           wait_ms / 1000)});
}

// It has given its devices away.
void WaitItsTurn(JobEntry& job, CoreState& core, Context& context) {
  job.recovery->replans = true;
  core.queue.Add(job.id(), job.request->queue.priority);
  job.queued_unix_ms = context.now.unix_ms;
  context.Do(
      LogLine{job.id(), fmt::format("queued again after step {}: its state stays in the memory of "
                                    "workers",
                                    job.record.steps_done)});
}

}  // namespace

std::optional<SeatedPlan> FindPlan(const JobEntry& job, const CoreState& core, Context& context) {
  if (auto larger = FindLargerPlan(job, core)) return larger;
  const Recovery& recovery = *job.recovery;
  if (auto seats = FindSeats(recovery, core.members)) {
    return SeatedPlan{recovery.plan, *std::move(seats)};
  }
  const ir::FaultToleranceSpec& spec = job.request->fault_tolerance;
  const int64_t waited_ms = context.now.ms - recovery.judged_ms;
  if (waited_ms < WaitForSpareMs(spec, /*has_program=*/true)) return std::nullopt;
  auto fewer = FindProgramAhead(job, core);
  if (fewer) {
    context.Do(LogLine{job.id(), "goes on with fewer devices, by the program made ahead"});
  }
  return fewer;
}

namespace {

// In the queue it still goes by a plan that there is, where it can, and blocks nobody, where it
// cannot. One that gave its devices away waits for its turn.
void TryAgain(JobEntry& job, CoreState& core, Context& context) {
  const Recovery& recovery = *job.recovery;
  if (recovery.gives_way) return recovery.replans ? void() : WaitItsTurn(job, core, context);
  if (LargerPlanComes(job, core)) return;
  if (const auto found = FindPlan(job, core, context)) {
    if (recovery.replans) LeaveQueue(job, core, context);
    return BeginRunAgain(job, found->ranks, found->plan, core, context);
  }
  const int64_t waited_ms = context.now.ms - recovery.judged_ms;
  const bool in_time =
      waited_ms < WaitForSpareMs(job.request->fault_tolerance, /*has_program=*/false);
  const bool may_replan = !in_time && MayReplan(job, core);
  if (recovery.replans && may_replan) return;
  if (may_replan) return Replan(job, core, context);
  if (recovery.replans) LeaveQueue(job, core, context);
  SetWaiting(
      job, "NoCapacity",
      fmt::format("waits for {} devices in the place of those that it had", recovery.ranks.size()),
      context);
}

bool WaitsForSeats(const JobEntry& job) {
  return job.record.state == JobState::kRecovering && !job.run;
}

}  // namespace

void BeginRecovery(JobEntry& job, const RuntimeError& cause, CoreState& core, Context& context) {
  const MeshState& mesh = core.meshes.At(*job.run->mesh()).state();
  const bool moves = job.run->halt() && job.run->halt()->behind_save;
  // A run that fails before it has done anything new belongs to the recovery that made it.
  Recovery recovery;
  if (job.recovery) recovery = *std::move(job.recovery);
  if (recovery.failures == 0) {
    recovery.since_ms = moves ? job.run->halt()->since_ms : mesh.aborting_since_ms;
    recovery.steps_before = job.record.steps_done;
    recovery.moves = true;
  }
  recovery.moves = recovery.moves && moves;
  const SnapshotStart* const from = job.run->start().snapshots.get();
  const bool unread = from != nullptr && !job.run->restored();
  if (unread && cause.kind == proto::ErrorKind::kStepFailed) recovery.unreadable.insert(from->id);
  recovery.held = job.run->driver().Held();
  if (const auto stands = job.run->driver().Stands()) recovery.stands = stands;
  recovery.told_start.clear();
  ++recovery.failures;
  recovery.plan = mesh.order.plan;
  recovery.plan.placement.clear();
  recovery.ranks = job.run->ranks();
  recovery.kind = mesh.order.kind;
  recovery.avoid = HostIsToBlame(cause) ? cause.worker : "";
  job.record.unheard_commits = mesh.unheard;
  recovery.judged_ms = context.now.ms;
  recovery.replans = recovery.gives_way = false;
  const char* const verb = recovery.ends_with ? "ending, its state is saved first"
                           : moves            ? "moving"
                                              : "recovering";
  job.recovery = std::move(recovery);
  job.run.reset();
  core.clients.FailAsks(job.id(), cause, context);
  core.book.Move(job, JobEvent::kRecover, context);
  const std::string text = fmt::format("{}: {}", verb, cause.message);
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
  AskForSnapshots(job, core, context);
}

std::string SetStart(JobEntry& job, Context& context) {
  RunStart start = TellStart(job, context);
  const std::string text = FromText(start);
  job.run->StartFrom(std::move(start));
  return text;
}

void RecoverJobs(CoreState& core, Context& context) {
  if (core.stopping) return;
  for (const JobId id : std::set<JobId>(core.book.recovering())) {
    JobEntry& job = core.book.At(id);
    if (!WaitsForSeats(job) || !job.snapshots.Settled(context.now.ms)) continue;
    if (job.recovery->ends_with) {
      TryLastSave(job, core, context);
      continue;
    }
    if (job.recovery->told_start.empty()) (void)TellStart(job, context);
    TryAgain(job, core, context);
  }
}

std::set<std::pair<std::string, int>> KeptDevices(const CoreState& core) {
  std::set<std::pair<std::string, int>> kept;
  for (const JobId id : core.book.recovering()) {
    const JobEntry& job = *core.book.Find(id);
    if (!WaitsForSeats(job) || job.recovery->replans || job.recovery->gives_way) continue;
    for (const RankPlace& rank : job.recovery->ranks) {
      kept.emplace(rank.worker, rank.local_device);
    }
  }
  return kept;
}

void NoteProgress(JobEntry& job, Context& context) {
  if (!job.recovery || job.recovery->ends_with) return;
  const Recovery& recovery = *job.recovery;
  // Where all steps were done, none is new.
  if (job.record.steps_done < std::min(recovery.steps_before + 1, job.record.steps)) return;
  const std::string text = fmt::format(
      "{} in {:.2f} s: letting go {:.2f}, finding devices {:.2f}, loading and connecting {:.2f}, "
      "restoring and {} steps again {:.2f}",
      recovery.moves ? "moved" : "recovered", Seconds(context.now.ms - recovery.since_ms),
      Seconds(recovery.judged_ms - recovery.since_ms),
      Seconds(recovery.placed_ms - recovery.judged_ms),
      Seconds(recovery.active_ms - recovery.placed_ms),
      recovery.steps_before - std::max<int64_t>(0, job.run->start().point.step),
      Seconds(context.now.ms - recovery.active_ms));
  context.Do(JobCounted{job.id(), JobCount::kRecovery});
  // What failed behind the last step is not passed by doing all steps again.
  if (job.record.steps_done > recovery.steps_before) job.history.own.reset();
  job.recovery.reset();
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
}

void StopReplanning(JobEntry& job, size_t devices, const RuntimeError& why, CoreState& core,
                    Context& context) {
  MW_CHECK(job.recovery && job.recovery->replans && !job.run)
      << "job " << job.record.id << " is not planned anew";
  core.queue.DropTry(job, context);
  job.recovery->replans = job.recovery->gives_way = false;
  job.recovery->unplannable = static_cast<int64_t>(devices);
  core.book.Move(job, JobEvent::kUnplace, context);
  context.Do(LogLine{job.id(), fmt::format("no plan for the {} devices that are there: {}; waiting "
                                           "for others",
                                           devices, why.message)});
}

}  // namespace meshwright::controller
