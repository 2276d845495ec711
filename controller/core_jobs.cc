#include "controller/core_jobs.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

#include "controller/core_halts.h"
#include "controller/core_restart.h"
#include "controller/core_runs.h"
#include "controller/no_such_job.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

namespace {

// Why no job is taken.
Status RoomForJobs(const CoreState& core) {
  if (core.stopping) return Unavailable("the controller is stopping; submit again later");
  if (core.queue.size() < core.options.max_queued) return OkStatus();
  return ResourceExhausted(
      fmt::format("{} jobs are queued, the most this controller holds; wait or cancel some",
                  core.queue.size()));
}

}  // namespace

void Restore(RestoredJob restored, CoreState& core, Context& context) {
  auto [job, run, failure] = core.book.Restore(std::move(restored), core.options);
  core.tally.List(job.id());
  if (!failure.ok()) return EndJob(job, failure, core, context);
  if (job.ended() || job.record.state == JobState::kPaused) return;
  // What cannot be saved first is not taken up for it.
  const bool cancels = job.record.wish == JobWish::kCancel;
  if (cancels && !(run && MayGoOn(job) && CanSave(*job.request))) {
    return EndJob(job, CancelCause(), core, context);
  }
  if (job.record.wish == JobWish::kPause && !run) return Park(job, core, context);
  if (run) return RestoreRun(job, *run, core, context);
  core.queue.Add(job.id(), job.request->queue.priority);
  context.Do(LogLine{job.id(), fmt::format("queued again: the controller was restarted (term {})",
                                           core.options.term.value())});
}

void On(const SubmitJob& event, CoreState& core, Context& context) {
  const JobEntry* const job = core.book.Submit(event, RoomForJobs(core), context);
  if (job == nullptr) return;
  core.tally.List(job->id());
  core.queue.Add(job->id(), job->request->queue.priority);
  for (const JobId deleted : core.book.Trim(core.meshes.Jobs(), context)) {
    core.tally.Forget(deleted);
    core.clients.ForgetJob(deleted);
  }
}

void On(const CancelJob& event, CoreState& core, Context& context) {
  const auto reply = [&](Status status) {
    context.Do(Reply{event.call, event.job, std::move(status)});
  };
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr) return reply(NoSuchJob(event.job));
  if (job->record.state == JobState::kCancelled) return reply(OkStatus());
  if (job->ended()) {
    return reply(FailedPrecondition(fmt::format("job {} has already ended: {}", job->record.id,
                                                proto::JobStateName(job->record.state))));
  }
  // Accepted; the end follows, and is tried again until it is durable.
  NoteWish(*job, JobWish::kCancel, context);
  reply(OkStatus());
  if (CancelBehindSave(*job, core, context)) return;
  if (job->run && job->run->mesh()) {
    Feed(*job->run->mesh(), MeshFault{CancelCause()}, core, context);
  } else {
    EndJob(*job, CancelCause(), core, context);
  }
}

void EndLongWaits(CoreState& core, Context& context) {
  const std::deque<JobId> queued = core.queue.jobs();
  for (const JobId id : queued) {
    JobEntry& job = core.book.At(id);
    const int64_t most_s = job.request->queue.max_wait_s;
    const int64_t waited_ms = context.now.unix_ms - job.queued_unix_ms;
    // Who had devices before has something to lose, and waits on.
    const bool ends = most_s > 0 && job.record.started_unix_ms == 0 && waited_ms >= most_s * 1000;
    if (!ends || job.record.state != JobState::kQueued) continue;
    const std::string text = fmt::format(
        "it waited {} s for its devices, the most that job.max_queue_wait_seconds allows: {}",
        most_s, job.record.message);
    EndJob(job,
           MakeError(ErrorKind::kQueueTimeout, DeadlineExceeded(text).WithBlame(Blame::kOverload)),
           core, context);
  }
}

void On(const WriteFailed& event, CoreState& core, Context& context) {
  // What is said of a worker holds as long as this controller lives.
  if (event.job.value() == 0 && event.call.value() != 0) {
    context.Do(Reply{event.call, event.job,
                     event.status.WithContext("it holds until the controller ends, and is not "
                                              "written down")});
  }
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr) return;
  if (event.call.value() != 0) {
    core.queue.Forget(event.job);
    core.tally.Forget(event.job);
    core.clients.ForgetJob(event.job);
    core.book.Withdraw(event.job);
    context.Do(Reply{event.call, event.job, event.status.WithContext("the job was not accepted")});
    return;
  }
  // The end stands as long as this controller lives.
  if (job->ended()) return core.book.EndNotWritten(*job, context);
  const RuntimeError cause =
      MakeError(ErrorKind::kStoreFailed, event.status.WithBlame(Blame::kInfra));
  if (!job->run) return EndJob(*job, cause, core, context);
  if (job->run->mesh()) {
    // Nobody was told of this generation: there is nothing to abort.
    core.meshes.Erase(*job->run->mesh());
    job->run->Unmesh();
  }
  FailRun(*job, cause, core, context);
}

}  // namespace meshwright::controller
