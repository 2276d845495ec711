#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/admission.h"
#include "controller/core.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

void Core::On(const WorkerMessage& event, Context& context) {
  if (const auto* info = std::get_if<proto::Register>(&event.message.body)) {
    Admit(event.session, *info, context);
    return;
  }
  Worker* worker = members_.Of(event.session);
  if (worker == nullptr) {
    ++stale_messages_;
    return;
  }
  if (event.message.term != options_.term) {
    ++stale_messages_;
    const std::string text = fmt::format("a message of term {} reached the controller of term {}",
                                         event.message.term.value(), options_.term.value());
    context.effects.push_back(CloseSession{event.session, FailedPrecondition(text)});
    LoseWorker(*worker, WorkerEvent::kClosed, text, context);
    return;
  }
  worker->last_seen_ms = context.now.ms;
  (void)members_.Apply(*worker, WorkerEvent::kSeen, context.now.ms);
  if (const auto* leave = std::get_if<proto::Leave>(&event.message.body)) {
    OnLeave(*worker, *leave, context);
    return;
  }
  if (OnActor(*worker, event.message.body, context)) return;
  OnMesh(*worker, event.message.body, context);
}

Status Core::CheckAdmission(const proto::Register& info) const {
  if (stopping_) return Unavailable("the controller is stopping");
  if (info.protocol_major != proto::kProtocolMajor) {
    return FailedPrecondition(
        fmt::format("worker '{}' {} speaks protocol {}.{}, this controller {} speaks {}.{}; "
                    "install the same version on both",
                    info.name, info.version, info.protocol_major, info.protocol_minor,
                    proto::kVersion, proto::kProtocolMajor, proto::kProtocolMinor));
  }
  if (!info.cluster_id.empty() && info.cluster_id != options_.cluster_id) {
    return FailedPrecondition(
        fmt::format("worker '{}' belongs to cluster {}, this controller is of cluster {}; restart "
                    "the worker to move it",
                    info.name, info.cluster_id, options_.cluster_id));
  }
  if (info.max_term > options_.term) {
    return FailedPrecondition(
        fmt::format("worker '{}' has served a controller of term {}; this one, of term {}, is out "
                    "of date and should be stopped",
                    info.name, info.max_term.value(), options_.term.value()));
  }
  MW_TRY(CheckRegistration(info));
  const Worker* const old = members_.Named(info.name);
  const bool alive =
      old != nullptr && (old->state == WorkerState::kReady || old->state == WorkerState::kJoining);
  if (!alive || old->info.incarnation == info.incarnation) return OkStatus();
  return AlreadyExists(
      fmt::format("a worker named '{}' is already connected (data address {}); choose another "
                  "--name",
                  info.name, old->info.address));
}

void Core::Admit(SessionId session, const proto::Register& info, Context& context) {
  if (members_.Of(session) != nullptr) {
    ++stale_messages_;
    return;
  }
  if (const Status status = CheckAdmission(info); !status.ok()) {
    context.effects.push_back(CloseSession{session, status});
    return;
  }
  const Result<mesh::SharedProfile> profile = ProfileOfWorker(info);
  if (!profile) {
    context.effects.push_back(CloseSession{session, profile.error()});
    return;
  }
  const Worker* const known = members_.Named(info.name);
  if (known != nullptr && known->session.value() != 0) {
    context.effects.push_back(CloseSession{known->session, Aborted("replaced by a newer session")});
    LoseWorker(members_.At(info.name), WorkerEvent::kReplaced, "it registered again", context);
  }
  members_.Admit(session, info, *profile, context.now.ms);
  CountMessage(JobId(0), "Register");
  CountMessage(JobId(0), "Welcome");
  proto::DownMessage welcome{
      options_.term,
      proto::Welcome{options_.cluster_id, options_.heartbeat_ms, options_.worker_lost_ms}};
  context.effects.push_back(Send{JobId(0), session, std::move(welcome)});
}

void Core::On(const SessionClosed& event, Context& context) {
  if (Worker* worker = members_.Of(event.session)) {
    LoseWorker(*worker, WorkerEvent::kClosed, fmt::format("its session ended ({})", event.why),
               context);
  }
}

void Core::OnLeave(Worker& worker, const proto::Leave& leave, Context& context) {
  if (!members_.Apply(worker, WorkerEvent::kLeave, context.now.ms)) return;
  const std::string text = fmt::format("worker '{}' was stopped{}{}", worker.info.name,
                                       leave.reason.empty() ? "" : ": ", leave.reason);
  const auto error = MakeError(ErrorKind::kWorkerStopped, Aborted(text).WithBlame(Blame::kInfra),
                               worker.info.name);
  for (uint64_t gen : Generations()) {
    const auto it = meshes_.find(gen);
    if (it == meshes_.end()) continue;
    Mesh& mesh = it->second;
    const bool member =
        std::any_of(mesh.members.begin(), mesh.members.end(),
                    [&](const MeshMember& m) { return m.session == worker.session && !m.freed; });
    if (member) FailMesh(mesh, error, context);
  }
  UnplaceUsersOf(worker, text, context);
}

// The session is over for good: its meshes lose a member, its reservations end.
void Core::LoseWorker(Worker& worker, WorkerEvent event, const std::string& why, Context& context) {
  const SessionId session = worker.session;
  if (!members_.Disconnect(worker, event, context.now.ms)) return;
  const bool left = worker.state == WorkerState::kLeft;
  const std::string text =
      fmt::format("worker '{}' (data address {}, {} devices) was {}: {}", worker.info.name,
                  worker.info.address, worker.info.devices, left ? "stopped" : "lost", why);
  const auto error = MakeError(left ? ErrorKind::kWorkerStopped : ErrorKind::kWorkerLost,
                               Unavailable(text).WithBlame(Blame::kInfra), worker.info.name);
  Persist persist{JobId(0), false, CallId(0), {}};
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, 0, text});
  context.effects.push_back(std::move(persist));

  for (uint64_t gen : Generations()) {
    const auto it = meshes_.find(gen);
    if (it == meshes_.end()) continue;
    for (MeshMember& member : it->second.members) {
      if (member.session != session) continue;
      MemberGone(it->second, member, error, context);
      break;
    }
  }
  Carry(actors_.WorkerGone(worker.info.name, text, context.now.ms), context);
  UnplaceUsersOf(worker, text, context);
  worker.device_job.assign(worker.device_job.size(), JobId(0));
}

// Jobs in PLANNING on this worker go back to the queue: nobody was told of a mesh yet.
void Core::UnplaceUsersOf(const Worker& worker, const std::string& why, Context& context) {
  for (auto& [id, job] : jobs_) {
    if (job.record.state != JobState::kPlanning) continue;
    const bool uses = std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankPlace& rank) {
      return rank.worker == worker.info.name;
    });
    if (uses) Unplace(job, why, context);
  }
}

void Core::CheckLiveness(Context& context) {
  // A stall of this loop is not the workers' silence: what was sent meanwhile is still waiting to
  // be read.
  constexpr int64_t kStallCapMs = 30'000;
  const int64_t late_ms = last_tick_ms_ < 0 ? 0 : context.now.ms - last_tick_ms_ - 1000;
  const int64_t stall_ms = std::min(late_ms, kStallCapMs);
  if (stall_ms > 0) members_.ForgiveStall(stall_ms, context.now.ms);
  const std::vector<std::string> silent =
      members_.FindSilent(options_.suspect_ms, options_.worker_lost_ms, context.now.ms);
  for (const std::string& name : silent) {
    Worker& worker = members_.At(name);
    const SessionId session = worker.session;
    const double seconds = static_cast<double>(context.now.ms - worker.last_seen_ms) / 1000.0;
    LoseWorker(worker, WorkerEvent::kExpired, fmt::format("no sign of life for {:.1f} s", seconds),
               context);
    context.effects.push_back(
        CloseSession{session, DeadlineExceeded(fmt::format("silent for {:.1f} s", seconds))});
  }
  members_.ForgetGone(options_.max_gone_workers);
}

// What placing sees: the devices of jobs whose mesh is ending come back in a moment.
ClusterView Core::View() const {
  ClusterView view{members_, {}};
  for (const auto& [generation, mesh] : meshes_) {
    const bool ends = mesh.phase == MeshPhase::kReleasing || mesh.phase == MeshPhase::kAborting;
    if (ends) view.ending.insert(mesh.job.value());
  }
  return view;
}

}  // namespace meshwright::controller
