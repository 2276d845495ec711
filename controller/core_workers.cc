#include "controller/core_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "controller/admission.h"
#include "controller/core_actors.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"
#include "controller/core_watch.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

namespace {

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
  ForgetSnapshots(worker.info.name, core);
  Carry(core.actors.WorkerGone(worker.info.name, text, context.now.ms), core, context);
  FailPlannedRuns(worker, error, core, context);
  worker.device_job.assign(worker.device_job.size(), JobId(0));
}

void Admit(SessionId session, const proto::Register& info, CoreState& core, Context& context) {
  if (core.members.Of(session) != nullptr) return core.tally.CountStale();
  const Worker* const known = core.members.Named(info.name);
  const Status status = core.stopping ? Unavailable("the controller is stopping")
                                      : CheckAdmission(info, known, core.options);
  if (!status.ok()) return context.Do(CloseSession{session, status});
  const Result<mesh::SharedProfile> profile = ProfileOfWorker(info);
  if (!profile) return context.Do(CloseSession{session, profile.error()});
  if (known != nullptr && known->session.value() != 0) {
    context.Do(CloseSession{known->session, Aborted("replaced by a newer session")});
    LoseWorker(core.members.At(info.name), WorkerEvent::kReplaced, "it registered again", core,
               context);
  }
  core.members.Admit(session, info, *profile, context.now.ms);
  core.tally.Count(JobId(0), "Register");
  core.tally.Count(JobId(0), "Welcome");
  const CoreOptions& options = core.options;
  proto::DownMessage welcome{options.term, proto::Welcome{options.cluster_id, options.heartbeat_ms,
                                                          options.worker_lost_ms}};
  context.Do(Send{JobId(0), session, std::move(welcome)});
}

// It is stopped on purpose and says so, while its session still stands.
void OnLeave(Worker& worker, const proto::Leave& leave, CoreState& core, Context& context) {
  if (!core.members.Apply(worker, WorkerEvent::kLeave, context.now.ms)) return;
  const std::string text = fmt::format("worker '{}' was stopped{}{}", worker.info.name,
                                       leave.reason.empty() ? "" : ": ", leave.reason);
  const auto error = MakeError(ErrorKind::kWorkerStopped, Aborted(text).WithBlame(Blame::kInfra),
                               worker.info.name);
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
  LoseWorker(*worker, WorkerEvent::kClosed, fmt::format("its session ended ({})", event.why), core,
             context);
}

void CheckLiveness(CoreState& core, Context& context) {
  // A stall of this loop is not the workers' silence: what was sent meanwhile is still waiting to
  // be read.
  constexpr int64_t kStallCapMs = 30'000;
  const int64_t late_ms = core.last_tick_ms < 0 ? 0 : context.now.ms - core.last_tick_ms - 1000;
  const int64_t stall_ms = std::min(late_ms, kStallCapMs);
  if (stall_ms > 0) core.members.ForgiveStall(stall_ms, context.now.ms);
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
