#include "controller/core_jobs.h"

#include <fmt/format.h>

#include <utility>

#include "controller/core_halts.h"
#include "controller/core_restart.h"
#include "controller/core_runs.h"

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
  if (run) return RestoreRun(job, *run, core, context);
  core.queue.Add(job.id());
  context.Do(LogLine{job.id(), fmt::format("queued again: the controller was restarted (term {})",
                                           core.options.term.value())});
}

void On(const SubmitJob& event, CoreState& core, Context& context) {
  const JobEntry* const job = core.book.Submit(event, RoomForJobs(core), context);
  if (job == nullptr) return;
  core.tally.List(job->id());
  core.queue.Add(job->id());
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
  if (job == nullptr) return reply(NotFound(fmt::format("there is no job {}", event.job.value())));
  if (job->record.state == JobState::kCancelled) return reply(OkStatus());
  if (job->ended()) {
    return reply(FailedPrecondition(fmt::format("job {} has already ended: {}", job->record.id,
                                                proto::JobStateName(job->record.state))));
  }
  reply(OkStatus());  // accepted; the end follows, and is tried again until it is durable
  if (CancelBehindSave(*job, core, context)) return;
  if (job->run && job->run->mesh()) {
    Feed(*job->run->mesh(), MeshFault{CancelCause()}, core, context);
  } else {
    EndJob(*job, CancelCause(), core, context);
  }
}

void On(const WriteFailed& event, CoreState& core, Context& context) {
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
