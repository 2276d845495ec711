#include "controller/core_halts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/core_last_save.h"
#include "controller/core_recovery.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"
#include "controller/no_such_job.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

MeshPhase PhaseOf(const JobEntry& job, const CoreState& core) {
  const MeshLife* const mesh = core.meshes.Find(*job.run->mesh());
  MW_CHECK(mesh != nullptr) << "job " << job.record.id << " runs on a mesh that is gone";
  return mesh->state().phase;
}

// Whether what is on record, or in the memory of workers, has all steps that are done.
bool IsSaved(JobEntry& job) {
  const int64_t on_disk = std::max<int64_t>(0, NewestStart(*job.request, job.record).step);
  return std::max(on_disk, job.run->driver().SnapshotStep()) >= job.record.steps_done;
}

struct HaltText {
  const char* reason;  // for machines
  const char* begins;  // for people
};
HaltText TextOf(HaltFor what) {
  switch (what) {
    case HaltFor::kCancel:
      return {"Cancelling", "cancelling"};
    case HaltFor::kFailure:
      return {"Failing", "ending"};
    case HaltFor::kPause:
      return {"Pausing", "pausing"};
    case HaltFor::kPreempt:
      return {"Preempting", "giving way"};
    case HaltFor::kReturn:
      return {"Returning", "returning to its plan"};
    case HaltFor::kDrain:
      break;
  }
  return {"Moving", "moving"};
}

void SetNews(JobEntry& job, std::string reason, std::string message, Context& context) {
  job.record.reason = std::move(reason);
  job.record.message = std::move(message);
  context.Do(JobChanged{job.id()});
}

// The run goes on where it was.
void GiveUpHalt(JobEntry& job, const std::string& why, CoreState& core, Context& context) {
  const HaltFor what = job.run->halt()->what;
  if (what == HaltFor::kPreempt) {
    job.preempt_after_ms = context.now.ms + core.options.preempt_again_ms;
  }
  if (what == HaltFor::kReturn) {
    job.active_ms = context.now.ms;
    ++job.returns;
  }
  if (what == HaltFor::kPause) job.record.wish = JobWish::kNone;
  job.run->halt().reset();
  job.run->driver().GoOn();
  SetNews(job, "", "", context);
  const char* verb = what == HaltFor::kPause     ? "not paused"
                     : what == HaltFor::kPreempt ? "not preempted"
                                                 : "not returned to its plan";
  const std::string text = fmt::format("{}: {}; it goes on", verb, why);
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
  GiveWork(job, core, context);
}

// It is planned anew, if ever.
void ForgetPlans(JobEntry& job, CoreState& core) {
  job.recovery.reset();
  job.larger.reset();
  job.ahead = ProgramsAhead(++core.ahead_epochs);
}

void Requeue(JobEntry& job, const Halt& halt, CoreState& core, Context& context) {
  core.clients.FailAsks(
      job.id(), MakeError(ErrorKind::kRefused, Unavailable(halt.why).WithBlame(Blame::kInfra)),
      context);
  job.run.reset();
  DropSnapshots(job, core, context);
  ForgetPlans(job, core);
  SetNews(job, "", "", context);
  core.queue.Add(job.id(), job.request->queue.priority);
  job.queued_unix_ms = context.now.unix_ms;
  core.book.Move(job, JobEvent::kUnplace, context);
  const std::string text =
      fmt::format("queued again after step {}: {}", job.record.steps_done, halt.why);
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
}

Halt HaltOf(JobWish wish, const CoreState& core, const Context& context) {
  const int64_t now_ms = context.now.ms;
  if (wish == JobWish::kCancel) {
    return {HaltFor::kCancel, now_ms, now_ms + core.options.cancel_save_ms,
            "cancelled by the user"};
  }
  return {HaltFor::kPause, now_ms, now_ms + core.options.pause_save_ms, "paused by the user"};
}

proto::RuntimeError CauseOf(const Halt& halt) {
  return MakeError(ErrorKind::kWorkerStopped, Unavailable(halt.why).WithBlame(Blame::kInfra));
}

// Why the job cannot be paused.
Status CheckPause(const JobEntry& job, const CoreState& core) {
  const int64_t id = job.record.id;
  if (job.ended()) {
    return FailedPrecondition(
        fmt::format("job {} has already ended: {}", id, proto::JobStateName(job.record.state)));
  }
  if (job.request->driver.kind != ir::DriverKind::kTrain) {
    return FailedPrecondition(fmt::format(
        "job {} does not train by itself: what its client or its evaluation did cannot be saved; "
        "cancel it instead",
        id));
  }
  if (!CanSave(*job.request)) {
    return FailedPrecondition(
        fmt::format("job {} keeps no checkpoints, and would lose its steps; submit it with --set "
                    "checkpoint.enable=true to pause it",
                    id));
  }
  if (job.recovery && job.recovery->ends_with) {
    return FailedPrecondition(fmt::format("job {} has failed, and is saved before it ends", id));
  }
  if (!job.run || !job.run->mesh()) return OkStatus();
  switch (PhaseOf(job, core)) {
    case MeshPhase::kSaving:
      return FailedPrecondition(
          fmt::format("job {} has done all its steps and ends in a moment", id));
    case MeshPhase::kResuming:
      return Unavailable(fmt::format(
          "job {} waits for its workers, which come back to this controller; ask again", id));
    default:
      return OkStatus();
  }
}

}  // namespace

// ---- What people ask ----------------------------------------------------------------------------

void NoteWish(JobEntry& job, JobWish wish, Context& context) {
  if (job.record.wish >= wish) return;
  job.record.wish = wish;
  PersistJob(job, false,
             wish == JobWish::kCancel ? "the user wants it cancelled" : "the user wants it paused",
             context);
}

proto::RuntimeError CancelCause() {
  return MakeError(ErrorKind::kCancelled,
                   Cancelled("cancelled by the user").WithBlame(Blame::kUser));
}

bool CancelBehindSave(JobEntry& job, CoreState& core, Context& context) {
  const bool saves = job.run && job.run->mesh() && CanSave(*job.request) &&
                     PhaseOf(job, core) == MeshPhase::kActive;
  if (!saves) return false;
  // Who asks a second time does not want to wait.
  if (job.run->HaltsFor(HaltFor::kCancel)) return false;
  BeginHalt(job, HaltOf(JobWish::kCancel, core, context), core, context);
  return true;
}

void On(const PauseJob& event, CoreState& core, Context& context) {
  const auto reply = [&](Status status) {
    context.Do(Reply{event.call, event.job, std::move(status)});
  };
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr) return reply(NoSuchJob(event.job));
  if (job->record.state == JobState::kPaused) return reply(OkStatus());
  if (Status status = CheckPause(*job, core); !status.ok()) return reply(std::move(status));
  NoteWish(*job, JobWish::kPause, context);
  reply(OkStatus());
  if (!job->run || !job->run->mesh()) return Park(*job, core, context);
  BeginHalt(*job, HaltOf(JobWish::kPause, core, context), core, context);
}

void On(const ResumeJob& event, CoreState& core, Context& context) {
  const auto reply = [&](Status status) {
    context.Do(Reply{event.call, event.job, std::move(status)});
  };
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr) return reply(NoSuchJob(event.job));
  if (job->run && job->run->HaltsFor(HaltFor::kPause) && !job->run->halt()->behind_save) {
    reply(OkStatus());
    return GiveUpHalt(*job, "resumed by the user", core, context);
  }
  if (job->record.state != JobState::kPaused) {
    return reply(
        FailedPrecondition(fmt::format("job {} is {}; only a paused job can be resumed",
                                       job->record.id, proto::JobStateName(job->record.state))));
  }
  reply(OkStatus());
  SetNews(*job, "", "", context);
  core.queue.Add(job->id(), job->request->queue.priority);
  job->queued_unix_ms = context.now.unix_ms;
  core.book.Move(*job, JobEvent::kResume, context);
  const std::string text = fmt::format("resumed: goes on after step {}, in its place in the queue",
                                       job->record.steps_done);
  PersistJob(*job, false, text, context);
  context.Do(LogLine{job->id(), text});
}

void On(const SaveJob& event, CoreState& core, Context& context) {
  const auto reply = [&](Status status) {
    context.Do(Reply{event.call, event.job, std::move(status)});
  };
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr) return reply(NoSuchJob(event.job));
  if (job->ended()) {
    return reply(FailedPrecondition(fmt::format("job {} has already ended: {}", job->record.id,
                                                proto::JobStateName(job->record.state))));
  }
  MW_CHECK(job->request != nullptr) << "job " << job->record.id << " goes on without a request";
  if (!CanSave(*job->request)) {
    return reply(FailedPrecondition(
        fmt::format("job {} keeps no checkpoints; submit it with --set checkpoint.enable=true",
                    job->record.id)));
  }
  if (!job->run || !job->run->mesh() || PhaseOf(*job, core) != MeshPhase::kActive) {
    return reply(Unavailable(fmt::format("job {} does no steps right now ({}); ask again",
                                         job->record.id, proto::JobStateName(job->record.state))));
  }
  reply(OkStatus());
  job->run->driver().RequestSave(SaveCause::kAsked);
  context.Do(LogLine{job->id(), "a checkpoint was asked for"});
  GiveWork(*job, core, context);
}

// ---- From the asking to the end -----------------------------------------------------------------

void BeginHalt(JobEntry& job, Halt halt, CoreState& core, Context& context) {
  MW_CHECK(job.run && job.run->mesh() && CanHalt(*job.request))
      << "job " << job.record.id << " cannot be halted";
  std::optional<Halt>& current = job.run->halt();
  if (current && (current->what <= halt.what || current->behind_save)) return;
  if (!current) job.run->driver().Halt(SaveCauseOf(halt.what));
  const HaltText text = TextOf(halt.what);
  SetNews(job, text.reason, halt.why, context);
  context.Do(
      LogLine{job.id(), fmt::format("{}: its state is {} first ({})", text.begins,
                                    CanSave(*job.request) ? "saved" : "kept in memory", halt.why)});
  current = std::move(halt);
  GiveWork(job, core, context);
}

bool EndHalt(JobEntry& job, CoreState& core, Context& context) {
  std::optional<Halt>& halt = job.run->halt();
  if (!halt || !job.run->driver().halted()) return false;
  // A job that has done all its steps needs no more than to end.
  const bool ends = halt->what == HaltFor::kCancel || halt->what == HaltFor::kFailure;
  if (job.run->done() && !ends) return false;
  const bool may_lose = ends || halt->what == HaltFor::kDrain;
  if (!may_lose && !IsSaved(job)) {
    GiveUpHalt(job, "its state could not be saved", core, context);
    return true;
  }
  halt->behind_save = true;
  Feed(*job.run->mesh(), MeshClose{false}, core, context);
  return true;
}

void FinishHalt(JobEntry& job, CoreState& core, Context& context) {
  const Halt halt = *job.run->halt();
  switch (halt.what) {
    case HaltFor::kCancel:
      return EndJob(job, CancelCause(), core, context);
    case HaltFor::kFailure:
      return EndSaved(job, core, context);
    case HaltFor::kPause:
      return Park(job, core, context);
    case HaltFor::kPreempt:
      if (CanSave(*job.request)) return Requeue(job, halt, core, context);
      BeginRecovery(job, CauseOf(halt), core, context);
      job.recovery->gives_way = true;
      return;
    case HaltFor::kDrain:
    case HaltFor::kReturn:
      return BeginRecovery(job, CauseOf(halt), core, context);
  }
}

namespace {

// A controller that is gone was asked for it.
void CarryOutWish(JobEntry& job, CoreState& core, Context& context) {
  const JobWish wish = job.record.wish;
  const bool is_new = wish != JobWish::kNone && CanSave(*job.request) && !job.run->halt();
  if (!is_new || PhaseOf(job, core) != MeshPhase::kActive) return;
  BeginHalt(job, HaltOf(wish, core, context), core, context);
}

}  // namespace

void CheckHalts(CoreState& core, Context& context) {
  for (auto& [id, job] : core.book.all()) {
    if (!job.run || !job.run->mesh()) continue;
    CarryOutWish(job, core, context);
    if (!job.run || !job.run->mesh() || !job.run->halt()) continue;
    const Halt& halt = *job.run->halt();
    if (halt.behind_save || context.now.ms < halt.until_ms) continue;
    if (halt.what == HaltFor::kCancel) {
      Feed(*job.run->mesh(), MeshFault{CancelCause()}, core, context);
    } else if (halt.what == HaltFor::kFailure) {
      Feed(*job.run->mesh(), MeshFault{*job.recovery->ends_with}, core, context);
    } else if (halt.what != HaltFor::kDrain) {
      const std::string why = fmt::format("its state was not saved within {} s",
                                          (halt.until_ms - halt.since_ms) / 1000);
      GiveUpHalt(job, why, core, context);
    }
  }
}

void Park(JobEntry& job, CoreState& core, Context& context) {
  core.queue.Forget(job.id());
  job.record.tries = 0;
  // A run that failed meanwhile has taken what it did behind the newest checkpoint with it.
  job.record.steps_done = std::min(
      job.record.steps_done, std::max<int64_t>(0, NewestStart(*job.request, job.record).step));
  if (job.run && !job.run->mesh()) {
    for (const RankPlace& rank : job.run->ranks()) {
      core.members.SetOwner(rank.worker, rank.local_device, JobId(0));
    }
  }
  const std::string text = fmt::format("paused after step {}; go on with 'meshwright resume {}'",
                                       job.record.steps_done, job.record.id);
  core.clients.FailAsks(
      job.id(), MakeError(ErrorKind::kRefused, Unavailable(text).WithBlame(Blame::kUser)), context);
  job.run.reset();
  DropSnapshots(job, core, context);
  ForgetPlans(job, core);
  job.record.wish = JobWish::kNone;
  job.record.reason = "Paused";
  job.record.message = text;
  core.book.Move(job, JobEvent::kPause, context);
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
}

}  // namespace meshwright::controller
