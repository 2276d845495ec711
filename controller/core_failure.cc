// The bad end of a mesh: abort everyone at once, elect one cause, free what is confirmed free.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/core.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

// May erase the mesh.
void Core::FailMesh(Mesh& mesh, proto::RuntimeError error, Context& context) {
  if (mesh.phase == MeshPhase::kReleasing) return;  // the job has ended: nothing left to fail
  if (mesh.phase == MeshPhase::kAborting) {
    ++mesh.errors;
    if (mesh.cause.MayBeVictim() && !error.MayBeVictim()) mesh.cause = std::move(error);
    CheckAborting(mesh, context);
    return;
  }
  const bool saving = mesh.phase == MeshPhase::kSaving;
  MoveMesh(mesh, MeshEvent::kFail, context);
  mesh.cause = std::move(error);
  mesh.errors = 1;
  MW_CHECK(!mesh.cause.ok()) << "mesh " << mesh.gen << " fails without a cause";
  mesh.launches.clear();  // ABANDONED
  (void)TakeNews(jobs_.at(mesh.job.value()), mesh.driver->Abandon(), context);
  if (saving) context.effects.push_back(DiscardWeights{mesh.job, mesh.gen});
  SendToAll(mesh, proto::AbortMesh{mesh.gen, mesh.cause}, context);
  CheckAborting(mesh, context);
}

void Core::MemberGone(Mesh& mesh, MeshMember& member, const proto::RuntimeError& why,
                      Context& context) {
  member.freed = true;
  if (mesh.phase == MeshPhase::kReleasing) {
    MemberFreed(mesh, member, context);
    return;
  }
  FailMesh(mesh, why, context);
}

// May erase the mesh.
void Core::MemberFreed(Mesh& mesh, MeshMember& member, Context& context) {
  if (mesh.phase != MeshPhase::kAborting && mesh.phase != MeshPhase::kReleasing) {
    // A member that lets go unasked has lost its part of the mesh.
    member.freed = true;
    members_.FreeDevicesOf(mesh.job, member.worker);
    FailMesh(mesh,
             MakeError(ErrorKind::kProtocol,
                       Internal(fmt::format("worker '{}' dropped mesh generation {} unasked",
                                            member.worker, mesh.gen.value())),
                       member.worker),
             context);
    return;
  }
  member.freed = true;
  members_.FreeDevicesOf(mesh.job, member.worker);
  if (mesh.phase == MeshPhase::kAborting) {
    CheckAborting(mesh, context);
    return;
  }
  const bool all = std::all_of(mesh.members.begin(), mesh.members.end(),
                               [](const MeshMember& m) { return m.freed; });
  if (!all) return;
  MW_CHECK(mesh.phase == MeshPhase::kReleasing)
      << "mesh " << mesh.gen << " in " << Name(mesh.phase);
  jobs_.at(mesh.job.value()).mesh.reset();
  meshes_.erase(mesh.gen.value());
}

// Ends the job when the cause is settled: everyone has let go and no better cause can come, or time
// is up.
void Core::CheckAborting(Mesh& mesh, Context& context) {
  const int64_t waited_ms = context.now.ms - mesh.phase_since_ms;
  const bool all_freed = std::all_of(mesh.members.begin(), mesh.members.end(),
                                     [](const MeshMember& m) { return m.freed; });
  const bool settled = !mesh.cause.MayBeVictim() || waited_ms >= options_.election_ms;
  if ((all_freed && settled) || waited_ms >= options_.abort_deadline_ms) {
    ConcludeAbort(mesh, context);
  }
}

// May erase the mesh.
void Core::ConcludeAbort(Mesh& mesh, Context& context) {
  if (mesh.phase != MeshPhase::kAborting) return;
  MoveMesh(mesh, MeshEvent::kFreed, context);
  JobEntry& job = jobs_.at(mesh.job.value());
  proto::RuntimeError cause = mesh.cause;
  const bool cancelled = cause.kind == ErrorKind::kCancelled;
  if (!cancelled && mesh.errors > 1) {
    cause.message += fmt::format(" ({} other errors followed from it)", mesh.errors - 1);
  }
  EndJob(job, cancelled ? JobEvent::kCancel : JobEvent::kFail, cause, context);
  const bool all_freed = std::all_of(mesh.members.begin(), mesh.members.end(),
                                     [](const MeshMember& m) { return m.freed; });
  if (!all_freed) return;
  members_.FreeDevicesOf(mesh.job, "");
  job.mesh.reset();
  meshes_.erase(mesh.gen.value());
}

std::vector<uint64_t> Core::Generations() const {
  std::vector<uint64_t> gens;
  for (const auto& [gen, mesh] : meshes_) gens.push_back(gen);
  return gens;
}

void Core::CheckMeshes(Context& context) {
  for (uint64_t gen : Generations()) {
    const auto it = meshes_.find(gen);
    if (it == meshes_.end()) continue;
    if (it->second.phase == MeshPhase::kAborting) {
      CheckAborting(it->second, context);
    } else if (it->second.phase == MeshPhase::kReleasing) {
      LoseDeafMembers(it->second, context);
    } else {
      CheckPhaseDeadline(it->second, context);
    }
  }
}

// A member that never lets go would hold its devices for ever, with a job that has ended long ago.
// Without its session it drops everything, and comes back when it has. May erase the mesh.
void Core::LoseDeafMembers(const Mesh& mesh, Context& context) {
  if (context.now.ms - mesh.phase_since_ms < options_.release_deadline_ms) return;
  const std::string why =
      fmt::format("it did not let go of mesh generation {} (job {}) within {} s", mesh.gen.value(),
                  mesh.job.value(), options_.release_deadline_ms / 1000);
  std::vector<SessionId> deaf;
  for (const MeshMember& member : mesh.members) {
    if (!member.freed) deaf.push_back(member.session);
  }
  for (const SessionId session : deaf) {
    Worker* worker = members_.Of(session);
    if (worker == nullptr) continue;
    context.effects.push_back(CloseSession{session, DeadlineExceeded(why)});
    LoseWorker(*worker, WorkerEvent::kExpired, why, context);
  }
}

// The phases that wait for every member once; a launch has no deadline of its own, its collectives
// have.
void Core::CheckPhaseDeadline(Mesh& mesh, Context& context) {
  struct Rule {
    MeshPhase phase;
    int64_t deadline_ms;
    bool MeshMember::*done;
    const char* what;
    ErrorKind kind;
  };
  const Rule rules[] = {
      {MeshPhase::kLoading, options_.load_deadline_ms, &MeshMember::loaded,
       "load its programs and data", ErrorKind::kLoadFailed},
      {MeshPhase::kConnecting, options_.connect_deadline_ms, &MeshMember::connected,
       "connect to its peers", ErrorKind::kConnectFailed},
      {MeshPhase::kSaving, options_.save_deadline_ms, &MeshMember::saved, "send its weights",
       ErrorKind::kSaveFailed},
  };
  for (const Rule& rule : rules) {
    if (rule.phase != mesh.phase) continue;
    if (context.now.ms - mesh.phase_since_ms < rule.deadline_ms) return;
    const auto late = std::find_if(mesh.members.begin(), mesh.members.end(),
                                   [&](const MeshMember& m) { return !(m.*rule.done); });
    const std::string worker = late == mesh.members.end() ? "" : late->worker;
    const std::string text = fmt::format("worker '{}' did not {} within {} s", worker, rule.what,
                                         rule.deadline_ms / 1000);
    FailMesh(mesh, MakeError(rule.kind, Internal(text).WithBlame(Blame::kInfra), worker), context);
    return;
  }
}

}  // namespace meshwright::controller
