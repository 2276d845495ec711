#include "controller/core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

namespace {

// Every rank has a reserved device of its own.
Status CheckPlacement(const PlannedJob& plan, size_t reserved) {
  if (plan.devices.empty() || plan.devices.size() > reserved) {
    return Internal(
        fmt::format("the plan has {} devices, {} were reserved", plan.devices.size(), reserved));
  }
  if (plan.placement.empty()) return OkStatus();
  std::vector<int> places = plan.placement;
  std::sort(places.begin(), places.end());
  const bool distinct = std::adjacent_find(places.begin(), places.end()) == places.end();
  if (distinct && places.size() == plan.devices.size() && places.front() >= 0 &&
      places.back() < static_cast<int>(reserved)) {
    return OkStatus();
  }
  return Internal(fmt::format("the plan places {} ranks on devices that were not reserved",
                              plan.placement.size()));
}

}  // namespace

uint32_t ProgramIndex(const PlannedJob& plan, const std::string& name) {
  const auto it = std::find(plan.programs.begin(), plan.programs.end(), name);
  MW_CHECK(it != plan.programs.end()) << "the plan has no program '" << name << "'";
  return static_cast<uint32_t>(it - plan.programs.begin());
}

JobId JobOf(const Effect& effect) {
  return std::visit(
      [](const auto& value) -> JobId {
        if constexpr (requires { value.job; }) {
          return value.job;
        } else {
          return JobId(0);
        }
      },
      effect);
}

Core::Core(CoreOptions options, uint64_t next_mesh_gen, std::vector<RestoredJob> jobs)
    : options_(std::move(options)),
      next_mesh_gen_(next_mesh_gen),
      next_job_id_(options_.first_job),
      restored_(std::move(jobs)),
      actors_(ActorOptions(options_)) {}

Effects Core::Start(Now now) {
  Context context{now, {}};
  members_.Begin(now.ms);
  for (RestoredJob& restored : restored_) RestoreJob(std::move(restored), context);
  restored_.clear();
  ScheduleQueue(context);
  return std::move(context.effects);
}

void Core::RestoreJob(RestoredJob restored, Context& context) {
  JobRecord& record = restored.record;
  next_job_id_ = std::max(next_job_id_, record.id + 1);
  const size_t request_bytes = std::exchange(record.spec, {}).size();
  JobEntry& job = jobs_[record.id];
  job.record = std::move(record);
  job_of_op_[job.record.op_id] = job.record.id;
  if (proto::IsTerminal(job.record.state)) return;
  const bool ran =
      job.record.state == JobState::kStarting || job.record.state == JobState::kRunning;
  if (ran) {
    const std::string message = fmt::format(
        "the controller was restarted while the job was {} (after step {} of {}); submit it again",
        proto::JobStateName(job.record.state), job.record.steps_done, job.record.steps);
    EndJob(job, JobEvent::kFail,
           MakeError(ErrorKind::kControllerRestarted, Aborted(message).WithBlame(Blame::kInfra)),
           context);
    return;
  }
  RestoreQueued(job, restored, context);
  if (job.request) TakeRequest(job, job.request, request_bytes);
}

void Core::RestoreQueued(JobEntry& job, RestoredJob& restored, Context& context) {
  job.record.state = JobState::kQueued;
  if (!restored.request.has_value()) {
    return EndJob(job, JobEvent::kFail,
                  MakeError(ErrorKind::kStoreFailed, restored.request.error().WithContext(
                                                         "the stored request is unreadable")),
                  context);
  }
  if (job.record.tries > options_.max_requeues) {
    const std::string message = fmt::format(
        "the controller ended {} times while it placed or planned this job, which is not tried "
        "again; give the controller more memory, or submit the job with a smaller model or fewer "
        "open degrees",
        job.record.tries);
    return EndJob(job, JobEvent::kFail, MakeError(ErrorKind::kPlanFailed, Aborted(message)),
                  context);
  }
  job.request = std::move(*restored.request);
  queue_.push_back(job.record.id);
  context.effects.push_back(LogLine{
      JobId(job.record.id),
      fmt::format("queued again: the controller was restarted (term {})", options_.term.value())});
}

Effects Core::Step(const Event& event, Now now) {
  Context context{now, {}};
  std::visit([&](const auto& body) { On(body, context); }, event);
  ScheduleQueue(context);
  return std::move(context.effects);
}

void Core::On(const SubmitJob& event, Context& context) {
  const auto refuse = [&](Status status) {
    context.effects.push_back(Reply{event.call, JobId(0), std::move(status)});
  };
  if (const auto known = job_of_op_.find(event.op_id); known != job_of_op_.end()) {
    context.effects.push_back(Reply{event.call, JobId(known->second), OkStatus()});
    return;
  }
  if (stopping_) return refuse(Unavailable("the controller is stopping; submit again later"));
  if (queue_.size() >= options_.max_queued) {
    return refuse(ResourceExhausted(fmt::format(
        "{} jobs are queued, the most this controller holds; wait or cancel some", queue_.size())));
  }
  const auto bytes = static_cast<int64_t>(event.spec.size());
  if (request_bytes_ + bytes > options_.max_request_bytes) {
    return refuse(ResourceExhausted(fmt::format(
        "the requests of jobs that have not ended take {}, with this one of {} more "
        "than the {} that this controller holds; wait or cancel some",
        FormatBytes(request_bytes_), FormatBytes(bytes), FormatBytes(options_.max_request_bytes))));
  }
  const int64_t id = next_job_id_++;
  JobEntry& job = jobs_[id];
  TakeRequest(job, event.request, event.spec.size());
  job.record.id = id;
  job.record.op_id = event.op_id;
  job.record.name = event.request->name;
  job.record.steps = StepsOf(*event.request);
  job.record.submitted_unix_ms = context.now.unix_ms;
  job_of_op_[event.op_id] = id;
  queue_.push_back(id);
  Persist persist{JobId(id), true, event.call, {}};
  persist.batch.jobs.push_back(job.record);
  persist.batch.jobs.back().spec = event.spec;
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, id, "submitted"});
  context.effects.push_back(std::move(persist));
  context.effects.push_back(Reply{event.call, JobId(id), OkStatus()});
  context.effects.push_back(
      LogLine{JobId(id), fmt::format("submitted job {} '{}'", id, job.record.name)});
  context.effects.push_back(JobChanged{JobId(id)});
  TrimJobs(context);
}

void Core::On(const CancelJob& event, Context& context) {
  const auto reply = [&](Status status) {
    context.effects.push_back(Reply{event.call, event.job, std::move(status)});
  };
  JobEntry* job = FindJob(event.job);
  if (job == nullptr) return reply(NotFound(fmt::format("there is no job {}", event.job.value())));
  if (job->record.state == JobState::kCancelled) return reply(OkStatus());
  if (proto::IsTerminal(job->record.state)) {
    return reply(FailedPrecondition(fmt::format("job {} has already ended: {}", job->record.id,
                                                proto::JobStateName(job->record.state))));
  }
  reply(OkStatus());  // accepted; the end follows, and is tried again until it is durable
  RuntimeError cause =
      MakeError(ErrorKind::kCancelled, Cancelled("cancelled by the user").WithBlame(Blame::kUser));
  if (job->mesh) {
    FailMesh(meshes_.at(job->mesh->value()), std::move(cause), context);
  } else {
    EndJob(*job, JobEvent::kCancel, cause, context);
  }
}

void Core::On(const PlanFinished& event, Context& context) {
  JobEntry* job = FindJob(event.job);
  const bool current = job != nullptr && job->record.state == JobState::kPlanning &&
                       job->plan_attempt == event.attempt;
  if (!current) return;  // cancelled, or placed anew meanwhile
  job->trying = false;
  job->record.tries = 0;
  if (!event.plan.has_value()) {
    const Status& why = event.plan.error();
    EndJob(*job, JobEvent::kFail,
           event.misfit ? MakeError(ErrorKind::kInfeasible, why.WithBlame(Blame::kUser))
                        : MakeError(ErrorKind::kPlanFailed, why),
           context);
    return;
  }
  if (const Status placed = CheckPlacement(*event.plan, job->ranks.size()); !placed.ok()) {
    EndJob(*job, JobEvent::kFail, MakeError(ErrorKind::kPlanFailed, placed), context);
    return;
  }
  StartMesh(*job, *event.plan, context);
}

void Core::On(const WriteFailed& event, Context& context) {
  JobEntry* job = FindJob(event.job);
  if (job == nullptr) return;
  if (event.call.value() != 0) {
    // Never acknowledged, so it never was.
    members_.FreeDevicesOf(event.job, "");
    std::erase(queue_, job->record.id);
    job_of_op_.erase(job->record.op_id);
    DropRequest(*job);
    jobs_.erase(event.job.value());
    context.effects.push_back(
        Reply{event.call, event.job, event.status.WithContext("the job was not accepted")});
    return;
  }
  if (proto::IsTerminal(job->record.state)) {
    unsaved_ends_.insert(job->record.id);  // tried again at every tick
    // The end stands as long as this controller lives: followers need not wait for the disk.
    if (!job->end_told) TellEnd(*job, context);
    job->end_told = true;
    return;
  }
  RuntimeError cause = MakeError(ErrorKind::kStoreFailed, event.status.WithBlame(Blame::kInfra));
  if (job->mesh) {
    // Nobody was told of this generation: there is nothing to abort.
    meshes_.erase(job->mesh->value());
    job->mesh.reset();
  }
  EndJob(*job, JobEvent::kFail, cause, context);
}

void Core::On(const Tick&, Context& context) {
  CheckLiveness(context);
  CheckMeshes(context);
  CheckClients(context);
  Carry(actors_.Tick(ReadyActorWorkers(), context.now.ms), context);
  for (int64_t id : std::exchange(unsaved_ends_, {})) {
    if (JobEntry* job = FindJob(JobId(id))) AnnounceEnd(*job, context);
  }
  last_tick_ms_ = context.now.ms;
}

void Core::On(const Shutdown&, Context& context) {
  stopping_ = true;
  const Status status =
      Aborted("the controller was stopped; start it again and submit the job again")
          .WithBlame(Blame::kUser);
  for (auto& [id, job] : jobs_) {
    if (!job.mesh || proto::IsTerminal(job.record.state)) continue;
    const uint64_t gen = job.mesh->value();
    FailMesh(meshes_.at(gen), MakeError(ErrorKind::kControllerStopped, status), context);
    // Nobody is left to wait for better causes.
    if (const auto it = meshes_.find(gen); it != meshes_.end()) ConcludeAbort(it->second, context);
  }
  Carry(actors_.Shutdown(), context);
  // Who ends on purpose has not been killed by what it planned.
  for (auto& [id, job] : jobs_) EndTry(job, context);
  for (const auto& [name, worker] : members_.all()) {
    if (worker.session.value() == 0) continue;
    context.effects.push_back(CloseSession{worker.session, Unavailable("the controller stopped")});
  }
}

// ---- Queue --------------------------------------------------------------------------------------

void Core::ScheduleQueue(Context& context) {
  if (stopping_) return;
  while (!queue_.empty()) {
    JobEntry& head = jobs_.at(queue_.front());
    if (!head.trying) {
      BeginTry(head, context);
      break;
    }
    if (PlaceHead(head, context)) continue;
    EndTry(head, context);
    break;
  }
  for (size_t i = 1; i < queue_.size(); ++i) {
    JobEntry& behind = jobs_.at(queue_[i]);
    behind.sight.clear();
    SetWaiting(behind, "QueuedBehind", fmt::format("waits behind job {} ({} ahead)", queue_[0], i),
               context);
  }
}

// What placing or planning a job does to this process must not be done over and over: a try is on
// disk before it begins, and one that waits for other devices has come to an end. Where the cluster
// looks as it did, so does the answer.
void Core::BeginTry(JobEntry& job, Context& context) {
  std::string sight = SightOf(View(), IsStable(job, context));
  if (job.sight == sight) return;
  job.sight = std::move(sight);
  job.trying = true;
  ++job.record.tries;
  PersistTries(job, context);
  context.effects.push_back(PlaceNext{});
}

void Core::EndTry(JobEntry& job, Context& context) {
  if (!job.trying) return;
  job.trying = false;
  --job.record.tries;
  PersistTries(job, context);
}

void Core::PersistTries(const JobEntry& job, Context& context) {
  Persist persist{JobId(job.record.id), false, CallId(0), {}};
  persist.batch.jobs.push_back(job.record);
  persist.batch.process_only = true;
  context.effects.push_back(std::move(persist));
}

// Workers may still be joining.
bool Core::IsStable(const JobEntry& job, const Context& context) const {
  return context.now.ms - members_.changed_ms() >= options_.infeasible_grace_ms &&
         context.now.unix_ms - job.record.submitted_unix_ms >= options_.infeasible_grace_ms;
}

// True when the head left the queue.
bool Core::PlaceHead(JobEntry& job, Context& context) {
  const bool stable = IsStable(job, context);
  Placement placement = PlaceOnKind(View(), *job.request, stable);
  switch (placement.outcome) {
    case PlacementOutcome::kNoWorkers:
      SetWaiting(job, "NoWorkers", std::move(placement.message), context);
      return false;
    case PlacementOutcome::kNoCapacity:
      SetWaiting(job, "NoCapacity", std::move(placement.message), context);
      return false;
    case PlacementOutcome::kInfeasible: {
      if (!stable) {
        SetWaiting(job, "Infeasible", std::move(placement.message), context);
        return false;
      }
      EndJob(job, JobEvent::kFail,
             MakeError(ErrorKind::kInfeasible,
                       FailedPrecondition(placement.message).WithBlame(Blame::kUser)),
             context);
      return true;
    }
    case PlacementOutcome::kPlaced:
      break;
  }
  queue_.pop_front();
  job.ranks.clear();
  for (const mesh::Device& device : placement.devices) {
    members_.SetOwner(device.worker, device.local_index, JobId(job.record.id));
    job.ranks.push_back(RankPlace{device.worker, device.local_index});
  }
  job.record.reason.clear();
  job.record.message.clear();
  ++job.plan_attempt;
  MoveJob(job, JobEvent::kPlace, context);
  mesh::Topology topology;
  topology.devices = std::move(placement.devices);
  for (const mesh::Device& device : topology.devices) {
    topology.hosts[device.host].cores = members_.HostCores(device.host);
  }
  mesh::TakeMeasuredLinks(topology);
  mesh::ShareHost(topology);
  context.effects.push_back(
      StartPlan{JobId(job.record.id), job.plan_attempt, job.request, std::move(topology)});
  return true;
}

void Core::SetWaiting(JobEntry& job, const char* reason, std::string message, Context& context) {
  if (job.record.reason == reason && job.record.message == message) return;
  const bool first = job.record.reason != reason;
  job.record.reason = reason;
  job.record.message = std::move(message);
  const JobId id(job.record.id);
  if (first) {
    context.effects.push_back(LogLine{id, fmt::format("waiting: {}", job.record.message)});
  }
  context.effects.push_back(JobChanged{id});
}

// A worker was lost before anyone was told of the job's mesh: back to its place in the queue.
void Core::Unplace(JobEntry& job, const std::string& why, Context& context) {
  members_.FreeDevicesOf(JobId(job.record.id), "");
  job.ranks.clear();
  job.sight.clear();
  EndTry(job, context);
  queue_.insert(std::lower_bound(queue_.begin(), queue_.end(), job.record.id), job.record.id);
  MoveJob(job, JobEvent::kUnplace, context);
  context.effects.push_back(LogLine{JobId(job.record.id), fmt::format("planning again: {}", why)});
}

// ---- Job states ---------------------------------------------------------------------------------

void Core::MoveJob(JobEntry& job, JobEvent event, Context& context) {
  const std::optional<JobState> next = Next(job.record.state, event);
  MW_CHECK(next.has_value()) << "job " << job.record.id << " in "
                             << proto::JobStateName(job.record.state) << " cannot " << Name(event);
  job.record.state = *next;
  context.effects.push_back(JobChanged{JobId(job.record.id)});
}

void Core::EndJob(JobEntry& job, JobEvent event, const RuntimeError& cause, Context& context) {
  std::erase(queue_, job.record.id);
  if (!job.mesh) members_.FreeDevicesOf(JobId(job.record.id), "");
  job.no_client_since_ms.reset();
  job.record.reason = cause.ok() ? "" : ErrorKindName(cause.kind);
  job.record.message = cause.message;
  job.record.ended_unix_ms = context.now.unix_ms;
  DropRequest(job);
  job.ranks.clear();
  Carry(actors_.JobEnded(JobId(job.record.id)), context);
  job.trying = false;
  MoveJob(job, event, context);
  // The end is durable before anyone hears of it: MoveJob's notice goes behind the write.
  context.effects.pop_back();
  AnnounceEnd(job, context);
  CloseClients(job, cause, context);
}

void Core::TakeRequest(JobEntry& job, std::shared_ptr<const ir::JobRequest> request, size_t bytes) {
  job.request = std::move(request);
  job.request_bytes = static_cast<int64_t>(bytes);
  request_bytes_ += job.request_bytes;
}

void Core::DropRequest(JobEntry& job) {
  job.request.reset();
  request_bytes_ -= std::exchange(job.request_bytes, 0);
}

void Core::AnnounceEnd(JobEntry& job, Context& context) {
  PersistJob(job, true, EndText(job.record), context);
  if (!job.end_told) TellEnd(job, context);
}

void Core::TellEnd(const JobEntry& job, Context& context) const {
  context.effects.push_back(LogLine{JobId(job.record.id), EndText(job.record)});
  context.effects.push_back(JobChanged{JobId(job.record.id)});
}

void Core::PersistJob(JobEntry& job, bool required, const std::string& text, Context& context) {
  Persist persist{JobId(job.record.id), required, CallId(0), {}};
  persist.batch.jobs.push_back(job.record);
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, job.record.id, text});
  context.effects.push_back(std::move(persist));
}

// Keeps the table bounded: the oldest ended jobs go first.
void Core::TrimJobs(Context& context) {
  auto it = jobs_.begin();
  while (jobs_.size() > options_.max_jobs && it != jobs_.end()) {
    if (!proto::IsTerminal(it->second.record.state) || it->second.mesh) {
      ++it;
      continue;
    }
    Persist persist{JobId(0), false, CallId(0), {}};
    persist.batch.deleted_jobs.push_back(it->first);
    context.effects.push_back(std::move(persist));
    job_of_op_.erase(it->second.record.op_id);
    it = jobs_.erase(it);
  }
}

Core::JobEntry* Core::FindJob(JobId id) {
  const auto it = jobs_.find(id.value());
  return it == jobs_.end() ? nullptr : &it->second;
}

void Core::CountMessage(JobId job, const char* kind) {
  ++message_totals_[kind];
  if (JobEntry* entry = FindJob(job)) ++entry->messages[kind];
}

}  // namespace meshwright::controller
