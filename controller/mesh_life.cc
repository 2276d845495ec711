#include "controller/mesh_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/launch_messages.h"
#include "controller/mesh_deadlines.h"
#include "controller/reconcile.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

bool MeshState::Hears(SessionId session) const {
  return std::any_of(members.begin(), members.end(), [&](const MeshMember& member) {
    return member.session == session && !member.freed;
  });
}

bool MeshState::All(bool MeshMember::*done) const {
  return std::all_of(members.begin(), members.end(),
                     [&](const MeshMember& member) { return member.*done; });
}

bool MeshState::AllHere() const {
  return std::none_of(members.begin(), members.end(),
                      [](const MeshMember& member) { return member.away; });
}

namespace {

constexpr int64_t kThroughController = 6;
constexpr size_t kMaxInvitationBytes = 64 << 10;

// One step under way.
struct MeshTurn {
  MeshState& mesh;
  int64_t now_ms;
  MeshStep out = {};

  MeshGeneration gen() const { return mesh.order.gen; }
  template <typename Effect>
  void Do(Effect effect) {
    out.effects.emplace_back(std::in_place_type<Effect>, std::move(effect));
  }
  void SendTo(const MeshMember& member, proto::DownBody body) {
    if (!member.freed) Do(MeshSend{member.session, std::move(body)});
  }
  void SendToAll(const proto::DownBody& body) {
    for (const MeshMember& member : mesh.members) SendTo(member, body);
  }
  void Move(MeshEvent event) {
    const std::optional<MeshPhase> next = Next(mesh.phase, event);
    MW_CHECK(next.has_value()) << "mesh " << gen() << " in " << Name(mesh.phase) << " cannot "
                               << Name(event);
    mesh.phase = *next;
    mesh.phase_since_ms = now_ms;
  }
};

// ---- The bad end --------------------------------------------------------------------------------

void ConcludeAbort(MeshTurn& turn) {
  if (turn.mesh.phase != MeshPhase::kAborting) return;
  turn.Move(MeshEvent::kFreed);
  turn.out.outcome = MeshOutcome::kFailed;
  turn.out.cause = turn.mesh.election.Conclude();
  turn.out.all_freed = turn.mesh.All(&MeshMember::freed);
}

// The mesh has failed when the cause is settled: everyone has let go and no better cause can come,
// or time is up.
void CheckAborting(MeshTurn& turn) {
  const MeshState& mesh = turn.mesh;
  const int64_t waited_ms = turn.now_ms - mesh.phase_since_ms;
  const bool settled = mesh.election.IsSettled(waited_ms, mesh.limits.election_ms);
  if ((mesh.All(&MeshMember::freed) && settled) || waited_ms >= mesh.limits.abort_deadline_ms) {
    ConcludeAbort(turn);
  }
}

void AbandonSave(MeshState& mesh) {
  if (mesh.saves.committing()) ++mesh.unheard;
  mesh.saves.Abandon();
}

void FailMesh(MeshTurn& turn, RuntimeError error) {
  MeshState& mesh = turn.mesh;
  if (mesh.phase == MeshPhase::kReleasing) return;  // its end is told: nothing left to fail
  if (mesh.phase == MeshPhase::kAborting) {
    mesh.election.Add(std::move(error));
    CheckAborting(turn);
    return;
  }
  const bool saving = mesh.phase == MeshPhase::kSaving;
  // An earlier controller may have had a save committed.
  if (mesh.phase == MeshPhase::kResuming && !mesh.order.checkpoints.folder.path.empty()) {
    ++mesh.unheard;
  }
  turn.Move(MeshEvent::kFail);
  mesh.aborting_since_ms = turn.now_ms;
  mesh.election.Add(std::move(error));
  mesh.launches.Abandon();
  AbandonSave(mesh);
  // Who has not come back has nothing to let go of that this controller knows of.
  for (MeshMember& member : mesh.members) member.freed = member.freed || !member.session.value();
  turn.Do(MeshAborts{});
  if (saving) turn.Do(MeshWeights{WeightsStep::kDiscard});
  turn.SendToAll(proto::AbortMesh{turn.gen(), mesh.election.leader()});
  CheckAborting(turn);
}

void LoseMember(MeshTurn& turn, MeshMember& member, const RuntimeError& why) {
  member.freed = true;
  if (turn.mesh.phase != MeshPhase::kReleasing) return FailMesh(turn, why);
  turn.out.all_freed = turn.mesh.All(&MeshMember::freed);
}

// A member that never lets go would hold its devices for ever, with a job that has ended long ago.
// Without its session it drops everything, and comes back when it has.
void FindDeafMembers(MeshTurn& turn) {
  const MeshState& mesh = turn.mesh;
  if (turn.now_ms - mesh.phase_since_ms < mesh.limits.release_deadline_ms) return;
  const std::string why = fmt::format(
      "it did not let go of mesh generation {} (job {}) within {} s", turn.gen().value(),
      mesh.order.job.value(), mesh.limits.release_deadline_ms / 1000);
  for (const MeshMember& member : mesh.members) {
    if (!member.freed) turn.out.deaf.push_back({member.session, why});
  }
}

// ---- Reports of the members ---------------------------------------------------------------------

void On(const proto::Loaded& loaded, MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (!loaded.error.ok()) {
    if (loaded.error.code == StatusCode::kDataLoss) turn.Do(MeshDataLost{});
    return FailMesh(turn, loaded.error);
  }
  if (mesh.phase != MeshPhase::kLoading || member.loaded) return;
  if (loaded.invitation.size() > kMaxInvitationBytes) {
    const std::string text =
        fmt::format("worker '{}' sends an invitation of {} bytes; at most {} are allowed",
                    member.worker, loaded.invitation.size(), kMaxInvitationBytes);
    return FailMesh(turn, MakeError(ErrorKind::kProtocol, Internal(text), member.worker));
  }
  member.loaded = true;
  member.invitation = loaded.invitation;
  if (!mesh.All(&MeshMember::loaded)) return;
  turn.Move(MeshEvent::kAllLoaded);
  proto::Connect connect{turn.gen(), {}};
  for (MeshMember& of : mesh.members) connect.invitations.push_back(std::move(of.invitation));
  turn.SendToAll(connect);
}

void On(const proto::CommUp& comm, MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (!comm.error.ok()) return FailMesh(turn, comm.error);
  if (mesh.phase != MeshPhase::kConnecting || member.connected) return;
  member.connected = true;
  if (!mesh.All(&MeshMember::connected)) return;
  turn.Move(MeshEvent::kAllConnected);
  turn.Do(MeshActivated{});
  turn.Do(MeshWantsWork{});
}

void On(const proto::LaunchDone& done, MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (!done.error.ok()) return FailMesh(turn, done.error);
  if (mesh.phase == MeshPhase::kResuming && member.held) member.held->done.push_back(done);
  if (mesh.phase != MeshPhase::kActive) return;
  const auto index = static_cast<size_t>(&member - mesh.members.data());
  const Status reported = mesh.launches.Report(index, done);
  if (reported.code() == StatusCode::kNotFound) {
    ++turn.out.stale;
    return;
  }
  if (!reported.ok()) {
    const std::string text =
        fmt::format("worker '{}' reported {}", member.worker, reported.message());
    return FailMesh(turn, MakeError(ErrorKind::kProtocol, Internal(text), member.worker));
  }
  bool any = false;
  while (std::optional<LaunchResult> result = mesh.launches.TakeComplete()) {
    turn.Do(MeshLaunched{*std::move(result)});
    any = true;
  }
  if (any) turn.Do(MeshWantsWork{});
}

void On(const proto::WeightsSaved& saved, MeshMember& member, MeshTurn& turn) {
  if (!saved.error.ok()) return FailMesh(turn, saved.error);
  if (turn.mesh.phase != MeshPhase::kSaving || member.saved) return;
  member.saved = true;
  if (turn.mesh.All(&MeshMember::saved)) turn.Do(MeshWeights{WeightsStep::kFinish});
}

// ---- Saves --------------------------------------------------------------------------------------

// There is room again for the next save, which may be due.
void EndSave(MeshTurn& turn, int64_t step, Status status) {
  turn.Do(MeshSaved{step, std::move(status), turn.mesh.saves.seconds()});
  turn.Do(MeshWantsWork{});
}

// Any member can, where the folder is one that all of them see.
void Commit(const proto::CommitCheckpoint& commit, MeshTurn& turn) {
  if (commit.folder.at_controller()) return turn.Do(MeshCommit{commit});
  turn.SendTo(turn.mesh.members.front(), commit);
}

void On(const proto::StateSaved& saved, MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (mesh.phase == MeshPhase::kResuming && member.held) member.held->saved = saved;
  if (mesh.phase != MeshPhase::kActive || !mesh.saves.busy()) return;
  const int64_t step = mesh.saves.current()->step;
  const auto index = static_cast<size_t>(&member - mesh.members.data());
  auto commit = mesh.saves.On(index, saved, turn.gen());
  if (!commit.has_value()) return EndSave(turn, step, commit.error());
  if (*commit) Commit(**commit, turn);
}

void EndCommit(const proto::CheckpointCommitted& committed, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (mesh.phase != MeshPhase::kActive || !mesh.saves.busy()) return;
  const int64_t step = mesh.saves.current()->step;
  const auto done = mesh.saves.On(committed);
  if (!done.has_value()) {
    ++mesh.unheard;
    return EndSave(turn, step, done.error());
  }
  if (*done) EndSave(turn, step, OkStatus());
}

void On(const proto::CheckpointCommitted& committed, MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (mesh.phase == MeshPhase::kResuming && member.held) member.held->committed = committed;
  EndCommit(committed, turn);
}

void On(const MeshCommitted& here, MeshTurn& turn) { EndCommit(here.committed, turn); }

// A disk that does not answer must not keep the job from its end.
void CheckSave(MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (mesh.phase != MeshPhase::kActive || !mesh.saves.busy()) return;
  // Those that pass through the controller take their time, and end by themselves when they stand.
  const int64_t patience = mesh.order.checkpoints.folder.at_controller() ? kThroughController : 1;
  const int64_t deadline_ms = patience * mesh.limits.save_deadline_ms;
  if (turn.now_ms - mesh.save_since_ms < deadline_ms) return;
  const int64_t step = mesh.saves.current()->step;
  AbandonSave(mesh);
  EndSave(turn, step,
          DeadlineExceeded(fmt::format("it was not written within {} s", deadline_ms / 1000)));
}

// ---- Members that come back ---------------------------------------------------------------------

// What a member has not heard goes out before anything new that follows from what others say.
void SendUnheard(const proto::ResumeMesh& said, const MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  const auto index = static_cast<size_t>(&member - mesh.members.data());
  for (proto::DownBody& message : mesh.launches.Unheard(index, HeardBy(said))) {
    turn.SendTo(member, std::move(message));
  }
}

// Behind all that has become known: a run that has done everything ends there.
void WantWorkLast(MeshTurn& turn) {
  std::erase_if(turn.out.effects, [](const MeshEffect& effect) {
    return std::holds_alternative<MeshWantsWork>(effect);
  });
  turn.Do(MeshWantsWork{});
}

// What it has said since it was heard last.
void CatchUp(const proto::ResumeMesh& said, MeshMember& member, MeshTurn& turn) {
  const int64_t stale = turn.out.stale;
  for (const proto::LaunchDone& done : said.done) On(done, member, turn);
  turn.out.stale = stale;  // most of it was heard before
  if (said.committed) On(*said.committed, member, turn);
  if (said.saved) On(*said.saved, member, turn);
}

void BeginSave(MeshTurn& turn, LaunchSeq seq, const PlannedLaunch& launch, int64_t unix_ms,
               bool again) {
  MeshState& mesh = turn.mesh;
  SaveRequest request = MakeSaveRequest(mesh.order.checkpoints, turn.gen().value(), seq,
                                        launch.first_step, SaveCauseName(launch.cause), unix_ms);
  // Those would be deleted last, and the one on record before them.
  if (request.keep > 0) request.keep += mesh.unheard;
  mesh.saves.Begin(std::move(request), mesh.members.size(), again);
  mesh.save_since_ms = turn.now_ms;
}

// A save before it has come to its end: only one is under way at a time.
void Relaunch(const ResumedLaunch& resumed, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  const PlannedLaunch& launch = resumed.launch;
  const LaunchSeq seq = mesh.launches.Add(launch, std::nullopt, mesh.members.size());
  if (launch.kind == LaunchKind::kSave) {
    mesh.saves.Abandon();
    const bool is_over = launch.first_step <= mesh.order.checkpoints.recorded;
    const int64_t unix_ms = mesh.order.checkpoints.head.saved_unix_ms;
    if (!is_over) BeginSave(turn, seq, launch, unix_ms, /*again=*/true);
  }
  if (!resumed.asked) mesh.launches.Keep(LaunchMessages(mesh, seq, {launch, std::nullopt}));
}

void TakeUp(MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  Result<KnownLaunches> known = Reconcile(mesh.order, mesh.members);
  if (!known.has_value()) {
    return FailMesh(
        turn, MakeError(ErrorKind::kControllerRestarted, known.error().WithBlame(Blame::kInfra)));
  }
  turn.Move(MeshEvent::kAllBack);
  turn.Do(MeshTakenUp{known->launches, known->first == LaunchSeq(1)});
  mesh.launches.StartAt(known->first);
  for (const ResumedLaunch& launch : known->launches) Relaunch(launch, turn);
  for (const MeshMember& member : mesh.members) SendUnheard(*member.held, member, turn);
  for (MeshMember& member : mesh.members) {
    const proto::ResumeMesh said = *std::exchange(member.held, std::nullopt);
    CatchUp(said, member, turn);
  }
  WantWorkLast(turn);
}

void On(const proto::ResumeMesh& said, MeshMember& member, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  const bool may_go_on = mesh.phase == MeshPhase::kResuming || mesh.phase == MeshPhase::kActive;
  if (!member.away || !may_go_on) {
    ++turn.out.stale;
    return;
  }
  member.away = false;
  if (mesh.phase == MeshPhase::kResuming) {
    member.held = said;
    if (mesh.AllHere()) TakeUp(turn);
    return;
  }
  SendUnheard(said, member, turn);
  CatchUp(said, member, turn);
  if (mesh.phase != MeshPhase::kActive) return;
  const proto::CommitCheckpoint* const commit = mesh.saves.commit();
  if (commit != nullptr && &member == &mesh.members.front()) Commit(*commit, turn);
  WantWorkLast(turn);
}

void On(const MeshMemberAway& away, MeshTurn& turn) {
  MW_CHECK(turn.mesh.phase == MeshPhase::kActive)
      << "mesh " << turn.gen() << " in " << Name(turn.mesh.phase) << " holds nothing";
  for (MeshMember& member : turn.mesh.members) {
    if (member.session == away.session && !member.freed) member.away = true;
  }
}

void On(const MeshMemberBack& back, MeshTurn& turn) {
  for (MeshMember& member : turn.mesh.members) {
    if (member.worker != back.worker || member.freed) continue;
    MW_CHECK(member.away) << "worker " << back.worker << " was not away";
    member.session = back.session;
  }
}

void On(const MeshMemberMissing& missing, MeshTurn& turn) {
  for (MeshMember& member : turn.mesh.members) {
    if (member.worker == missing.worker && !member.freed) {
      return LoseMember(turn, member, missing.why);
    }
  }
}

// The members of a mesh of an earlier controller had their time.
void FindMissing(MeshTurn& turn) {
  const MeshState& mesh = turn.mesh;
  if (turn.now_ms - mesh.phase_since_ms < mesh.limits.resume_deadline_ms) return;
  const auto missing = std::find_if(mesh.members.begin(), mesh.members.end(),
                                    [](const MeshMember& member) { return member.away; });
  const std::string worker = missing == mesh.members.end() ? "" : missing->worker;
  const std::string text =
      fmt::format("the controller was restarted, and worker '{}' did not come back within {} s",
                  worker, mesh.limits.resume_deadline_ms / 1000);
  FailMesh(turn, MakeError(ErrorKind::kControllerRestarted,
                           Unavailable(text).WithBlame(Blame::kInfra), worker));
}

// An error that says nothing is one of the protocol: a mesh never aborts without a cause.
void On(const proto::MeshError& report, MeshMember& member, MeshTurn& turn) {
  if (!report.error.ok()) return FailMesh(turn, report.error);
  const std::string text = fmt::format(
      "worker '{}' reported an error of mesh generation {} without "
      "saying which; install the same version on both",
      member.worker, turn.gen().value());
  FailMesh(turn, MakeError(ErrorKind::kProtocol, Internal(text), member.worker));
}

void On(const proto::MeshReleased&, MeshMember& member, MeshTurn& turn) {
  const MeshState& mesh = turn.mesh;
  member.freed = true;
  turn.Do(MeshDevicesFreed{member.worker, member.local_devices});
  if (mesh.phase == MeshPhase::kAborting) return CheckAborting(turn);
  if (mesh.phase == MeshPhase::kReleasing) {
    turn.out.all_freed = mesh.All(&MeshMember::freed);
    return;
  }
  // A member that lets go unasked has lost its part of the mesh.
  const std::string text = fmt::format("worker '{}' dropped mesh generation {} unasked",
                                       member.worker, turn.gen().value());
  FailMesh(turn, MakeError(ErrorKind::kProtocol, Internal(text), member.worker));
}

// ---- What happens -------------------------------------------------------------------------------

void On(const MeshBegin&, MeshTurn& turn) {
  for (const MeshMember& member : turn.mesh.members) {
    turn.SendTo(member, LoadMessage(turn.mesh, member));
  }
}

void On(const MeshReport& report, MeshTurn& turn) {
  auto& members = turn.mesh.members;
  const auto member = std::find_if(members.begin(), members.end(), [&](const MeshMember& m) {
    return m.session == report.session && !m.freed;
  });
  MW_CHECK(member != members.end()) << "session " << report.session << " is no member's";
  std::visit(
      [&](const auto& body) {
        if constexpr (requires { On(body, *member, turn); }) On(body, *member, turn);
      },
      report.body);
}

void On(const MeshMemberLost& lost, MeshTurn& turn) {
  for (MeshMember& member : turn.mesh.members) {
    if (member.session == lost.session) return LoseMember(turn, member, lost.why);
  }
}

void On(const MeshFault& fault, MeshTurn& turn) { FailMesh(turn, fault.cause); }

void On(const MeshLaunch& launch, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  MW_CHECK(mesh.HasRoom()) << "mesh " << turn.gen() << " runs " << mesh.launches.size();
  const auto& client = launch.work.client;
  const LaunchSeq seq = mesh.launches.Add(
      launch.work.launch, client ? std::optional(client->id) : std::nullopt, mesh.members.size());
  if (launch.work.launch.kind == LaunchKind::kSave) {
    BeginSave(turn, seq, launch.work.launch, launch.unix_ms, /*again=*/false);
  }
  std::vector<proto::DownBody> messages = LaunchMessages(mesh, seq, launch.work);
  mesh.launches.Keep(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    turn.SendTo(mesh.members[i], std::move(messages[i]));
  }
}

void Release(MeshTurn& turn) {
  turn.Move(MeshEvent::kRelease);
  turn.SendToAll(proto::ReleaseMesh{turn.gen()});
  turn.out.outcome = MeshOutcome::kFinished;
}

void On(const MeshClose& close, MeshTurn& turn) {
  MW_CHECK(turn.mesh.launches.empty())
      << "mesh " << turn.gen() << " still runs " << turn.mesh.launches.size();
  if (!close.save_weights) return Release(turn);
  turn.Move(MeshEvent::kAllLaunched);
  turn.Do(MeshWeights{WeightsStep::kOpen});
}

void On(const MeshWeightsFile& file, MeshTurn& turn) {
  MeshState& mesh = turn.mesh;
  if (mesh.phase != MeshPhase::kSaving) return;
  if (!file.status.ok()) {
    return FailMesh(turn, MakeError(ErrorKind::kSaveFailed, file.status.WithBlame(Blame::kInfra)));
  }
  if (file.complete) {
    turn.Do(MeshWeights{WeightsStep::kSaved});
    return Release(turn);
  }
  for (MeshMember& member : mesh.members) {
    proto::SaveWeights save = SaveMessage(mesh, member);
    member.saved = save.ranks.empty();
    if (!member.saved) turn.SendTo(member, std::move(save));
  }
  if (mesh.All(&MeshMember::saved)) turn.Do(MeshWeights{WeightsStep::kFinish});
}

void On(const MeshTick&, MeshTurn& turn) {
  if (turn.mesh.phase == MeshPhase::kAborting) {
    CheckAborting(turn);
  } else if (turn.mesh.phase == MeshPhase::kReleasing) {
    FindDeafMembers(turn);
  } else if (turn.mesh.phase == MeshPhase::kResuming) {
    FindMissing(turn);
  } else if (auto late = FindLate(turn.mesh, turn.now_ms)) {
    FailMesh(turn, *std::move(late));
  }
  CheckSave(turn);
}

void On(const MeshEndElection&, MeshTurn& turn) { ConcludeAbort(turn); }

}  // namespace

MeshLife::MeshLife(MeshOrder order, const MeshLimits& limits, int64_t now_ms, MeshPhase first) {
  MW_CHECK(!order.members.empty()) << "mesh " << order.gen << " has no members";
  state_.members = std::move(order.members);
  state_.unheard = order.checkpoints.unheard;
  state_.order = std::move(order);
  state_.limits = limits;
  state_.phase = first;
  state_.phase_since_ms = now_ms;
}

MeshStep MeshLife::Step(const MeshInput& input, int64_t now_ms) {
  MeshTurn turn{state_, now_ms};
  std::visit([&](const auto& what) { On(what, turn); }, input);
  return std::move(turn.out);
}

}  // namespace meshwright::controller
