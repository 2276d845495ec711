#include "controller/core_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "controller/admission.h"
#include "controller/core_actors.h"
#include "controller/core_resume.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"
#include "controller/core_watch.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

namespace {

constexpr int64_t kLongestLeaveMs = 86'400'000;

// Jobs in PLANNING on this worker have no mesh that could say so.
void FailPlannedRuns(const Worker& worker, const RuntimeError& error, CoreState& core,
                     Context& context) {
  for (auto& [id, job] : core.book.all()) {
    const bool planned = job.run && !job.run->mesh();
    if (planned && job.run->Uses(worker.info.name)) FailRun(job, error, core, context);
  }
}

// The session is over for good: its meshes lose a member, its reservations end.
void LoseWorker(Worker& worker, WorkerEvent event, const std::string& why, CoreState& core,
                Context& context) {
  const SessionId session = worker.session;
  if (!core.members.Disconnect(worker, event, context.now.ms)) return;
  const bool left = worker.state == WorkerState::kLeft;
  const std::string text =
      fmt::format("worker '{}' (data address {}, {} devices) was {}: {}", worker.info.name,
                  worker.info.address, worker.info.devices, left ? "stopped" : "lost", why);
  const auto error = MakeError(left ? ErrorKind::kWorkerStopped : ErrorKind::kWorkerLost,
                               Unavailable(text).WithBlame(Blame::kInfra), worker.info.name);
  Persist persist{JobId(0), false, CallId(0), {}};
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, 0, text});
  context.Do(std::move(persist));
  for (const MeshGeneration gen : core.meshes.Generations()) {
    Feed(gen, MeshMemberLost{session, error}, core, context);
  }
  ForgetSnapshots(worker.info.name, core, context);
  Carry(core.actors.WorkerGone(worker.info.name, text, context.now.ms), core, context);
  FailPlannedRuns(worker, error, core, context);
  worker.device_job.assign(worker.device_job.size(), JobId(0));
}

// ---- Workers whose session broke ----------------------------------------------------------------

// It is the same process, with what it had.
bool MayRejoin(const Worker& worker, const proto::Register& info) {
  const bool has_left = worker.state == WorkerState::kDraining;
  return !has_left && worker.info.incarnation == info.incarnation && !info.meshes.empty() &&
         worker.info.devices == info.devices;
}

// What goes on without it for a moment does so; the rest does not.
void GoAway(Worker& worker, CoreState& core, Context& context) {
  worker.away_since_ms = context.now.ms;
  (void)core.members.Apply(worker, WorkerEvent::kSilent, context.now.ms);
  const std::string text = fmt::format("the session of worker '{}' broke", worker.info.name);
  const auto error = MakeError(ErrorKind::kWorkerLost, Unavailable(text).WithBlame(Blame::kInfra),
                               worker.info.name);
  Carry(core.actors.WorkerGone(worker.info.name, text, context.now.ms), core, context);
  FailPlannedRuns(worker, error, core, context);
  PartFromMeshes(worker, error, core, context);
}

void Rejoin(Worker& worker, SessionId session, const proto::Register& info,
            mesh::SharedProfile profile, CoreState& core, Context& context) {
  if (!worker.away_since_ms) GoAway(worker, core, context);
  LeaveEndingMeshes(worker, core, context);
  const SessionId before = worker.session;
  core.members.Rejoin(worker, session, info, std::move(profile), context.now.ms);
  LoseUnlisted(before, worker, core, context);
  Persist persist{JobId(0), false, CallId(0), {}};
  const std::string text = fmt::format("worker '{}' came back", worker.info.name);
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, 0, text});
  context.Do(std::move(persist));
}

// A peer that has failed says that it does not come back; so does the time.
void LoseAway(CoreState& core, Context& context) {
  std::vector<std::string> lost;
  const CoreOptions& options = core.options;
  const bool stalled = context.now.ms - core.last_stall_ms < options.worker_lost_ms;
  const int64_t patience_ms = stalled ? options.worker_lost_ms : options.resume_ms;
  for (const auto& [name, worker] : core.members.all()) {
    if (!worker.away_since_ms) continue;
    const bool late = context.now.ms - *worker.away_since_ms >= patience_ms;
    if (late || !HoldsMesh(worker, core)) lost.push_back(name);
  }
  for (const std::string& name : lost) {
    LoseWorker(core.members.At(name), WorkerEvent::kClosed,
               "its session ended, and it did not come back", core, context);
  }
}

void Admit(SessionId session, const proto::Register& info, CoreState& core, Context& context) {
  if (core.members.Of(session) != nullptr) return core.tally.CountStale();
  const Worker* const known = core.members.Named(info.name);
  Status status = core.stopping ? Unavailable("the controller is stopping")
                                : CheckAdmission(info, known, core.options);
  if (status.ok()) status = CheckReach(info, core.members);
  if (!status.ok()) return context.Do(CloseSession{session, status});
  const Result<mesh::SharedProfile> profile = ProfileOfWorker(info);
  if (!profile) return context.Do(CloseSession{session, profile.error()});
  if (known != nullptr && known->session.value() != 0) {
    context.Do(CloseSession{known->session, Aborted("replaced by a newer session")});
    Worker& worker = core.members.At(info.name);
    if (MayRejoin(worker, info)) {
      Rejoin(worker, session, info, *profile, core, context);
    } else {
      LoseWorker(worker, WorkerEvent::kReplaced, "it registered again", core, context);
    }
  }
  if (core.members.Of(session) == nullptr) {
    core.members.Admit(session, info, *profile, context.now.ms);
  }
  const std::vector<MeshGeneration> kept = TakeBack(core.members.At(info.name), core, context);
  core.tally.Count(JobId(0), "Register");
  core.tally.Count(JobId(0), "Welcome");
  const CoreOptions& options = core.options;
  proto::DownMessage welcome{options.term, proto::Welcome{options.cluster_id, options.heartbeat_ms,
                                                          options.worker_lost_ms, kept}};
  context.Do(Send{JobId(0), session, std::move(welcome)});
  AskArrived(core.members.At(info.name), core, context);
}

// It is stopped on purpose and says so, while its session still stands.
void OnLeave(Worker& worker, const proto::Leave& leave, CoreState& core, Context& context) {
  if (worker.state == WorkerState::kDraining) {
    // It does not wait any longer.
    if (leave.drain_ms == 0) worker.leave_by_ms = context.now.ms;
    return;
  }
  if (!core.members.Apply(worker, WorkerEvent::kLeave, context.now.ms)) return;
  // What runs there is saved and moved first (controller/core_standings.h).
  if (leave.drain_ms > 0) {
    worker.leave_by_ms = context.now.ms + std::min(leave.drain_ms, kLongestLeaveMs);
    return;
  }
  const std::string text = fmt::format("worker '{}' was stopped{}{}", worker.info.name,
                                       leave.reason.empty() ? "" : ": ", leave.reason);
  proto::RuntimeError error = leave.error;
  if (error.ok()) {
    error = MakeError(ErrorKind::kWorkerStopped, Aborted(text).WithBlame(Blame::kInfra),
                      worker.info.name);
  }
  for (const MeshGeneration gen : core.meshes.Generations()) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    if (mesh == nullptr || !mesh->state().Hears(worker.session)) continue;
    Feed(gen, MeshFault{error}, core, context);
  }
  FailPlannedRuns(worker, error, core, context);
}

// The mesh that a message is of; nothing: it is of none.
std::optional<MeshGeneration> GenerationOf(const proto::UpBody& body) {
  return std::visit(
      [](const auto& message) -> std::optional<MeshGeneration> {
        if constexpr (requires { message.mesh_gen; }) {
          return message.mesh_gen;
        } else {
          return std::nullopt;
        }
      },
      body);
}

void OnMeshMessage(const Worker& worker, const proto::UpBody& body, CoreState& core,
                   Context& context) {
  const auto gen = GenerationOf(body);
  if (!gen) return;
  const MeshLife* const mesh = core.meshes.Find(*gen);
  if (mesh == nullptr || !mesh->state().Hears(worker.session)) return core.tally.CountStale();
  core.tally.Count(mesh->job(), proto::KindName(body));
  Feed(*gen, MeshReport{worker.session, body}, core, context);
}

}  // namespace

void On(const WorkerMessage& event, CoreState& core, Context& context) {
  if (const auto* info = std::get_if<proto::Register>(&event.message.body)) {
    return Admit(event.session, *info, core, context);
  }
  Worker* const worker = core.members.Of(event.session);
  if (worker == nullptr) return core.tally.CountStale();
  if (event.message.term != core.options.term) {
    core.tally.CountStale();
    const std::string text = fmt::format("a message of term {} reached the controller of term {}",
                                         event.message.term.value(), core.options.term.value());
    context.Do(CloseSession{event.session, FailedPrecondition(text)});
    return LoseWorker(*worker, WorkerEvent::kClosed, text, core, context);
  }
  worker->last_seen_ms = context.now.ms;
  (void)core.members.Apply(*worker, WorkerEvent::kSeen, context.now.ms);
  if (const auto* leave = std::get_if<proto::Leave>(&event.message.body)) {
    return OnLeave(*worker, *leave, core, context);
  }
  if (const auto* heartbeat = std::get_if<proto::Heartbeat>(&event.message.body)) {
    return HearMarks(*worker, *heartbeat, core, context);
  }
  if (OnActorMessage(*worker, event.message.body, core, context)) return;
  if (OnSnapshotsHeld(*worker, event.message.body, core, context)) return;
  if (OnSnapshotCopied(*worker, event.message.body, core, context)) return;
  OnMeshMessage(*worker, event.message.body, core, context);
}

void On(const SessionClosed& event, CoreState& core, Context& context) {
  Worker* const worker = core.members.Of(event.session);
  if (worker == nullptr) return;
  const bool may_return = core.options.resume_ms > 0 && worker->state != WorkerState::kDraining;
  if (may_return && HoldsMesh(*worker, core)) return GoAway(*worker, core, context);
  LoseWorker(*worker, WorkerEvent::kClosed, fmt::format("its session ended ({})", event.why), core,
             context);
}

void CheckLiveness(CoreState& core, Context& context) {
  // A stall of this loop is not the workers' silence: what was sent meanwhile is still waiting to
  // be read.
  constexpr int64_t kStallCapMs = 30'000;
  const int64_t late_ms = core.last_tick_ms < 0 ? 0 : context.now.ms - core.last_tick_ms - 1000;
  const int64_t stall_ms = std::min(late_ms, kStallCapMs);
  if (stall_ms > 0) {
    core.members.ForgiveStall(stall_ms, context.now.ms);
    core.last_stall_ms = context.now.ms;
  }
  LoseAway(core, context);
  const std::vector<std::string> silent =
      core.members.FindSilent(core.options.suspect_ms, core.options.worker_lost_ms, context.now.ms);
  for (const std::string& name : silent) {
    Worker& worker = core.members.At(name);
    const SessionId session = worker.session;
    const double seconds = static_cast<double>(context.now.ms - worker.last_seen_ms) / 1000.0;
    LoseWorker(worker, WorkerEvent::kExpired, fmt::format("no sign of life for {:.1f} s", seconds),
               core, context);
    context.Do(
        CloseSession{session, DeadlineExceeded(fmt::format("silent for {:.1f} s", seconds))});
  }
  core.members.ForgetGone(core.options.max_gone_workers);
}

void LoseDeaf(const std::vector<DeafMember>& deaf, CoreState& core, Context& context) {
  for (const DeafMember& member : deaf) {
    Worker* const worker = core.members.Of(member.session);
    if (worker == nullptr) continue;
    context.Do(CloseSession{member.session, DeadlineExceeded(member.why)});
    LoseWorker(*worker, WorkerEvent::kExpired, member.why, core, context);
  }
}

}  // namespace meshwright::controller
