#include "controller/job_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "controller/checkpoint_order.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

std::string EndText(const JobRecord& job) {
  const char* state = proto::JobStateName(job.state);
  if (job.reason.empty()) return fmt::format("{} after {} steps", state, job.steps_done);
  return fmt::format("{} ({}): {}", state, job.reason, job.message);
}

RuntimeError RestartedWhileRunning(const JobRecord& record) {
  return MakeError(
      ErrorKind::kControllerRestarted,
      Aborted(fmt::format("the controller was restarted while the job was {} (after step {} of {})",
                          proto::JobStateName(record.state), record.steps_done, record.steps))
          .WithBlame(Blame::kInfra));
}

namespace {

// Why a job of an earlier controller cannot go on; OK: it is queued.
RuntimeError FailureOfRestored(const JobRecord& record, const Status& request, bool has_run,
                               const CoreOptions& options) {
  const bool ran = record.state == JobState::kStarting || record.state == JobState::kRunning;
  if (ran && !(has_run && request.ok())) return RestartedWhileRunning(record);
  if (!request.ok()) {
    return MakeError(ErrorKind::kStoreFailed,
                     request.WithContext("the stored request is unreadable"));
  }
  if (record.tries > options.max_requeues) {
    const std::string message = fmt::format(
        "the controller ended {} times while it placed or planned this job, which is not tried "
        "again; give the controller more memory, or submit the job with a smaller model or fewer "
        "open degrees",
        record.tries);
    return MakeError(ErrorKind::kPlanFailed, Aborted(message));
  }
  return {};
}

JobEvent EventOf(const RuntimeError& cause) {
  if (cause.ok()) return JobEvent::kFinished;
  return cause.kind == ErrorKind::kCancelled ? JobEvent::kCancel : JobEvent::kFail;
}

void TellEnd(const JobEntry& job, Context& context) {
  context.Do(LogLine{job.id(), EndText(job.record)});
  context.Do(JobChanged{job.id()});
}

}  // namespace

// ---- Coming -------------------------------------------------------------------------------------

JobBook::Restored JobBook::Restore(RestoredJob restored, const CoreOptions& options) {
  next_id_ = std::max(next_id_, restored.record.id + 1);
  const size_t request_bytes = std::exchange(restored.record.spec, {}).size();
  JobEntry& job = jobs_[JobId(restored.record.id)];
  job.record = std::move(restored.record);
  job_of_op_[job.record.op_id] = job.id();
  if (job.ended()) return {job, {}, {}};
  const Status request = restored.request.has_value() ? OkStatus() : restored.request.error();
  RuntimeError failure = FailureOfRestored(job.record, request, restored.run.has_value(), options);
  const bool recovers = job.record.state == JobState::kRecovering;
  if (job.record.state == JobState::kPlanning || (recovers && !restored.run)) {
    job.record.state = JobState::kQueued;
  }
  if (job.record.state == JobState::kQueued) restored.run.reset();
  job.queued_unix_ms = job.record.submitted_unix_ms;
  if (failure.ok()) TakeRequest(job, *std::move(restored.request), request_bytes);
  return {job, std::move(restored.run), std::move(failure)};
}

namespace {

// Two jobs in one folder would prune each other's checkpoints.
const JobEntry* SaverInto(const std::map<JobId, JobEntry>& jobs, const ir::FolderRef& folder) {
  if (folder.path.empty()) return nullptr;
  for (const auto& [id, job] : jobs) {
    const ir::FolderRef& its = job.record.checkpoint_folder;
    // A root without a name may be any.
    const bool same_root = its.root == folder.root || its.root.empty() || folder.root.empty();
    if (!job.ended() && its.path == folder.path && same_root) return &job;
  }
  return nullptr;
}

void TakeNames(const SubmitJob& event, JobRecord& record) {
  record.op_id = event.op_id;
  record.name = event.request->name;
  record.tool = event.tool;
}

}  // namespace

JobEntry* JobBook::Submit(const SubmitJob& event, const Status& room, Context& context) {
  const auto answer = [&](JobId job, Status status) -> JobEntry* {
    context.Do(Reply{event.call, job, std::move(status)});
    return nullptr;
  };
  const auto known = job_of_op_.find(event.op_id);
  if (known != job_of_op_.end()) return answer(known->second, OkStatus());
  if (!room.ok()) return answer(JobId(0), room);
  const auto bytes = static_cast<int64_t>(event.spec.size());
  if (request_bytes_ + bytes > context.options.max_request_bytes) {
    const Status full = ResourceExhausted(
        fmt::format("the requests of jobs that have not ended take {}, with this one of {} more "
                    "than the {} that this controller holds; wait or cancel some",
                    FormatBytes(request_bytes_), FormatBytes(bytes),
                    FormatBytes(context.options.max_request_bytes)));
    return answer(JobId(0), full);
  }
  const JobId id(next_id_);
  const ir::FolderRef folder = CheckpointFolderOf(*event.request, id.value());
  const JobEntry* const saver = SaverInto(jobs_, folder);
  if (saver != nullptr) {
    const Status taken = FailedPrecondition(
        fmt::format("job {} keeps its checkpoints in {}: wait for its end, cancel it, or set "
                    "checkpoint.folder to another one",
                    saver->record.id, folder.path));
    return answer(JobId(0), taken);
  }
  ++next_id_;
  JobEntry& job = jobs_[id];
  TakeRequest(job, event.request, event.spec.size());
  job.record.id = id.value();
  TakeNames(event, job.record);
  job.record.steps = StepsOf(*event.request);
  job.record.steps_done = std::max<int64_t>(0, event.request->start.step);
  job.record.checkpoint_folder = folder;
  job.record.submitted_unix_ms = context.now.unix_ms;
  job.queued_unix_ms = context.now.unix_ms;
  job_of_op_[event.op_id] = id;
  Persist persist{id, true, event.call, {}};
  persist.batch.jobs.push_back(job.record);
  persist.batch.jobs.back().spec = event.spec;
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, id.value(), "submitted"});
  context.Do(std::move(persist));
  context.Do(Reply{event.call, id, OkStatus()});
  context.Do(LogLine{id, fmt::format("submitted job {} '{}'", id.value(), job.record.name)});
  context.Do(JobChanged{id});
  return &job;
}

void JobBook::Withdraw(JobId id) {
  JobEntry& job = At(id);
  job_of_op_.erase(job.record.op_id);
  DropRequest(job);
  jobs_.erase(id);
}

// ---- Entries ------------------------------------------------------------------------------------

JobEntry* JobBook::Find(JobId id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const JobEntry* JobBook::Find(JobId id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

JobEntry& JobBook::At(JobId id) {
  JobEntry* const job = Find(id);
  MW_CHECK(job != nullptr) << "there is no job " << id;
  return *job;
}

void JobBook::TakeRequest(JobEntry& job, std::shared_ptr<const ir::JobRequest> request,
                          size_t bytes) {
  job.request = std::move(request);
  job.request_bytes = static_cast<int64_t>(bytes);
  request_bytes_ += job.request_bytes;
}

void JobBook::DropRequest(JobEntry& job) {
  job.request.reset();
  request_bytes_ -= std::exchange(job.request_bytes, 0);
}

// ---- States and ends ----------------------------------------------------------------------------

void JobBook::Move(JobEntry& job, JobEvent event, Context& context) {
  const std::optional<JobState> next = Next(job.record.state, event);
  MW_CHECK(next.has_value()) << "job " << job.record.id << " in "
                             << proto::JobStateName(job.record.state) << " cannot " << Name(event);
  job.record.state = *next;
  recovering_.erase(job.id());
  if (*next == JobState::kRecovering) recovering_.insert(job.id());
  context.Do(JobChanged{job.id()});
}

void JobBook::End(JobEntry& job, const RuntimeError& cause, Context& context) {
  job.record.reason = cause.ok() ? "" : ErrorKindName(cause.kind);
  job.record.message = cause.message;
  job.record.ended_unix_ms = context.now.unix_ms;
  job.record.wish = JobWish::kNone;
  DropRequest(job);
  job.run.reset();
  job.recovery.reset();
  job.larger.reset();
  job.ahead = ProgramsAhead();
  Move(job, EventOf(cause), context);
  // The end is durable before anyone hears of it: the notice of Move goes behind the write.
  context.effects.pop_back();
  AnnounceEnd(job, context);
}

void JobBook::AnnounceEnd(JobEntry& job, Context& context) const {
  PersistJob(job, true, EndText(job.record), context);
  if (!job.end_told) TellEnd(job, context);
}

// Followers need not wait for the disk.
void JobBook::EndNotWritten(JobEntry& job, Context& context) {
  unwritten_ends_.insert(job.id());
  if (!job.end_told) TellEnd(job, context);
  job.end_told = true;
}

void JobBook::WriteEndsAgain(Context& context) {
  for (const JobId id : std::exchange(unwritten_ends_, {})) {
    if (JobEntry* const job = Find(id)) AnnounceEnd(*job, context);
  }
}

std::vector<JobId> JobBook::Trim(const std::set<JobId>& kept, Context& context) {
  std::vector<JobId> deleted;
  auto it = jobs_.begin();
  while (jobs_.size() > context.options.max_jobs && it != jobs_.end()) {
    if (!it->second.ended() || kept.contains(it->first)) {
      ++it;
      continue;
    }
    Persist persist{JobId(0), false, CallId(0), {}};
    persist.batch.deleted_jobs.push_back(it->first.value());
    context.Do(std::move(persist));
    job_of_op_.erase(it->second.record.op_id);
    deleted.push_back(it->first);
    it = jobs_.erase(it);
  }
  return deleted;
}

// ---- Of one job ---------------------------------------------------------------------------------

void PersistJob(const JobEntry& job, bool required, const std::string& text, Context& context) {
  Persist persist{job.id(), required, CallId(0), {}};
  persist.batch.jobs.push_back(job.record);
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, job.record.id, text});
  context.Do(std::move(persist));
}

void PersistTries(const JobEntry& job, Context& context) {
  Persist persist{job.id(), false, CallId(0), {}};
  persist.batch.jobs.push_back(job.record);
  persist.batch.process_only = true;
  context.Do(std::move(persist));
}

void SetWaiting(JobEntry& job, const char* reason, std::string message, Context& context) {
  if (job.record.reason == reason && job.record.message == message) return;
  const bool first = job.record.reason != reason;
  job.record.reason = reason;
  job.record.message = std::move(message);
  if (first) context.Do(LogLine{job.id(), fmt::format("waiting: {}", job.record.message)});
  context.Do(JobChanged{job.id()});
}

void TellNews(JobEntry& job, DriverNews news, Context& context) {
  if (news.loss) job.record.loss = *news.loss;
  if (news.steps_done) job.record.steps_done = *news.steps_done;
  for (std::string& line : news.log_lines) context.Do(LogLine{job.id(), std::move(line)});
  if (context.now.ms - job.progress_saved_ms >= 1000) {
    job.progress_saved_ms = context.now.ms;
    context.Do(SaveProgress{job.id(), job.record.steps_done, job.record.loss});
  }
  if (!news.steps.empty()) job.record.told_steps = news.steps.back().step + 1;
  if (!news.steps.empty()) context.Do(StepsDone{job.id(), std::move(news.steps)});
}

}  // namespace meshwright::controller
